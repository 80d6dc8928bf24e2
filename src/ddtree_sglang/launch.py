"""`ddtree-sglang`: SGLang's launcher, once it is sure that the plug-in works.

SGLang only logs a plug-in that fails and goes on without it, which ends in "Unknown speculative
algorithm" or, worse, in a server without its hooks. Arguments are those of
`sglang.launch_server`; `--speculative-algorithm DDTREE` is added unless an algorithm is given.
"""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Final

from ddtree_sglang.options import ALGORITHM

GROUP: Final = "sglang.srt.plugins"
NAME: Final = "ddtree"
TARGET: Final = "ddtree_sglang.plugin:register"
_ALGORITHM_FLAG: Final = "--speculative-algorithm"


class PluginError(Exception):
    """The plug-in would not work in SGLang's processes; says why and what to do."""


def check_entry_point(allowed: str | None) -> None:
    """Raise PluginError unless SGLang's processes will find the plug-in.

    `allowed`: the value of SGLANG_PLUGINS, names SGLang restricts itself to, if it is set.
    """
    found = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    if found.get(NAME) != TARGET:
        raise PluginError(
            f"no entry point {NAME} = {TARGET} in group {GROUP}: install this project into "
            "SGLang's environment, or put src and src/ddtree_sglang/site on PYTHONPATH"
        )
    names = [name.strip() for name in (allowed or "").split(",") if name.strip()]
    if names and NAME not in names:
        raise PluginError(f"SGLANG_PLUGINS={allowed} leaves {NAME} out: add it, or unset it")


def check_loaded() -> None:
    """Load SGLang's plug-ins as it does; raise PluginError unless ours is in place."""
    from sglang.srt.plugins import load_plugins
    from sglang.srt.plugins.hook_registry import HookRegistry
    from sglang.srt.speculative.spec_registry import get_spec

    load_plugins()
    if get_spec(ALGORITHM) is None:
        raise PluginError(f"{ALGORITHM} did not register: the log above says why")
    from ddtree_sglang.hooks import HOOKS

    missing = sorted(HOOKS.keys() - HookRegistry._patched)
    if missing:
        raise PluginError(
            f"SGLang has changed, no place for the hooks on {', '.join(missing)}: take 0.5.17"
        )


def arguments(given: Sequence[str]) -> list[str]:
    """The launcher's arguments, with our algorithm unless one is given."""
    if any(part.split("=")[0] == _ALGORITHM_FLAG for part in given):
        return list(given)
    return [*given, _ALGORITHM_FLAG, ALGORITHM]


def main() -> None:
    """Start SGLang; exit 1 with the reason where the plug-in cannot work."""
    try:
        check_entry_point(os.environ.get("SGLANG_PLUGINS"))
        check_loaded()
    except PluginError as error:
        sys.exit(f"ddtree-sglang: {error}")
    sys.argv[1:] = arguments(sys.argv[1:])
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
