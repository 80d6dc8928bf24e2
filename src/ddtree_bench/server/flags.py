"""Which flags the installed SGLang knows, asked of SGLang itself before a server is started.

SGLang renames flags between releases, private forks add some, and its parser takes abbreviations,
so a wrong flag either kills the server after minutes or means something else without a word.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from ddtree_bench.config.suggest import nearest
from ddtree_bench.errors import Fault, MachineError

ALGORITHM: Final = "--speculative-algorithm"
"""Not limited by the parser; the probe asks SGLang's registry, plug-ins included."""

RENAMED: Final = {
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    "--disable-piecewise-cuda-graph": "--cuda-graph-backend-prefill=disabled",
    "--enable-breakable-cuda-graph": "--cuda-graph-backend-prefill=breakable",
    "--enforce-piecewise-cuda-graph": "--cuda-graph-backend-prefill=tc_piecewise",
    "--mamba-scheduler-strategy": "--mamba-radix-cache-strategy",
    "--nsa-decode-backend": "--dsa-decode-backend",
    "--nsa-prefill-backend": "--dsa-prefill-backend",
    "--piecewise-cuda-graph-max-tokens": "--cuda-graph-max-bs-prefill",
    "--piecewise-cuda-graph-tokens": "--cuda-graph-bs-prefill",
    "--speculative-dflash-draft-window-size": "--speculative-draft-window-size",
    "--stream-output": "--incremental-streaming-output",
}
"""Old name → new name, from the deprecations of SGLang 0.5.17 and their removal in 0.5.23."""

_MARK: Final = "ddtree-bench options: "
_PROGRAM: Final = f"""
import argparse, json
import sglang
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative import spec_info, spec_registry
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
options = [
    {{
        "names": action.option_strings,
        "nargs": None if action.nargs is None else str(action.nargs),
        "choices": None if action.choices is None else sorted(map(str, action.choices)),
    }}
    for action in parser._actions
    if action.option_strings
]
names = {{member.name for member in spec_info.SpeculativeAlgorithm}}
names |= set(getattr(spec_registry, "_REGISTRY", ()))
names |= set(getattr(spec_registry, "_RESERVED_ALIASES", ()))
known = {{"version": sglang.__version__, "options": options, "algorithms": sorted(names)}}
print("\\n" + {_MARK!r} + json.dumps(known), flush=True)
"""


class _Border(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Option(_Border):
    """One option of the parser, in argparse's own terms."""

    names: tuple[str, ...]
    nargs: str | None
    """None: one value; `0`: none; `?`, `*`, `+` or a count as argparse has them."""
    choices: tuple[str, ...] | None


class KnownFlags(_Border):
    """Every option of one installed SGLang."""

    version: str
    options: tuple[Option, ...]
    algorithms: tuple[str, ...]
    """Names that `--speculative-algorithm` takes, in capitals, those of plug-ins included."""

    def by_name(self) -> dict[str, Option]:
        """Options under each of their spellings."""
        return {name: option for option in self.options for name in option.names}


@dataclass(frozen=True, slots=True)
class GivenFlag:
    """A flag of a command line with its values."""

    index: int
    """Place in the list of arguments."""
    name: str
    values: tuple[str, ...]


def split_args(args: Sequence[str]) -> tuple[tuple[GivenFlag, ...], tuple[tuple[int, str], ...]]:
    """Flags with their values, and the (place, word) pairs that stand before any flag."""
    flags: list[GivenFlag] = []
    stray: list[tuple[int, str]] = []
    for index, word in enumerate(args):
        if _is_flag(word):
            name, equals, value = word.partition("=")
            flags.append(GivenFlag(index, name, (value,) if equals else ()))
        elif flags:
            last = flags[-1]
            flags[-1] = GivenFlag(last.index, last.name, (*last.values, word))
        else:
            stray.append((index, word))
    return tuple(flags), tuple(stray)


def unknown_flags(
    args: Sequence[str], known: KnownFlags, *, file: str, line: int | None = None, key: str
) -> tuple[Fault, ...]:
    """Every fault of `args` that SGLang's parser would stop at or misread; empty if there is none.

    `file`, `line` and `key` say where the arguments stand, such as `servers.ddtree.args`.
    An abbreviation that argparse would take is a fault: it may mean another flag tomorrow.
    """
    flags, stray = split_args(args)
    options = known.by_name()
    faults = [
        Fault(file, line, f"{key}[{index}]", f"`{word}` belongs to no flag")
        for index, word in stray
    ]
    for flag in flags:
        faults += [
            Fault(file, line, f"{key}[{flag.index}]", what)
            for what in _wrongs(flag, options, known)
        ]
    return tuple(faults)


def _is_flag(word: str) -> bool:
    """`--name` or `-n`; a negative number is a value."""
    return word.startswith("--") or (word.startswith("-") and word[1:2].isalpha())


def _wrongs(flag: GivenFlag, options: Mapping[str, Option], known: KnownFlags) -> Iterator[str]:
    option = options.get(flag.name)
    if option is None:
        yield f"SGLang {known.version} has no flag `{flag.name}`{_advice(flag.name, options)}"
        return
    wrong_count = _wrong_count(option, len(flag.values))
    if wrong_count is not None:
        yield f"`{flag.name}` {wrong_count}, got {list(flag.values)}"
        return
    for value in flag.values:
        if flag.name == ALGORITHM and value.upper() not in known.algorithms:
            names = ", ".join(known.algorithms)
            yield f"SGLang {known.version} has no algorithm `{value}`; with its plug-ins: {names}"
        if option.choices is not None and value not in option.choices:
            yield f"`{flag.name}` does not take `{value}`{nearest(value, option.choices)}"


def _advice(name: str, options: Mapping[str, Option]) -> str:
    """What to write instead of an unknown flag: the renamed, full or nearest one."""
    renamed = RENAMED.get(name)
    if renamed is not None and renamed.partition("=")[0] in options:
        return f"; it is called `{renamed}` now"
    older = next((old for old, new in RENAMED.items() if new == name and old in options), None)
    if older is not None:
        return f"; this version still calls it `{older}`"
    full = sorted(option for option in options if option.startswith(name))
    if full:
        return f"; abbreviations are not taken, write {' or '.join(f'`{one}`' for one in full[:5])}"
    close = get_close_matches(name, options, n=1, cutoff=0.8)  # flags share long prefixes
    return f"; did you mean `{close[0]}`?" if close else "; is a plug-in or a fork missing?"


def _wrong_count(option: Option, given: int) -> str | None:
    """What the option takes, if that is not what was given."""
    if option.nargs is None:
        return None if given == 1 else "takes one value"
    if option.nargs == "0":
        return None if given == 0 else "takes no value"
    if option.nargs == "?":
        return None if given <= 1 else "takes one value at most"
    if option.nargs == "+":
        return None if given >= 1 else "takes at least one value"
    if option.nargs.isdigit():
        return None if given == int(option.nargs) else f"takes {option.nargs} values"
    return None


def probe_flags(
    python: Path, *, env: Mapping[str, str] | None = None, timeout_s: float = 180.0
) -> KnownFlags:
    """The flags of the SGLang that this interpreter has, plug-ins included.

    `env` is the server's whole environment (None: this process's), because plug-ins are chosen by
    it. The answer is kept for as long as the interpreter's file is unchanged.

    Raises:
        MachineError: there is no such interpreter, it has no SGLang, or it did not answer in time.
    """
    try:
        modified_ns = python.stat().st_mtime_ns
    except OSError as error:
        raise MachineError(
            f"cannot use the interpreter: {error.strerror}",
            where=str(python),
            remedy="install the engine's environment or correct `python` of the server",
        ) from error
    pairs = tuple(sorted((os.environ if env is None else env).items()))
    return _probe(str(python.absolute()), modified_ns, pairs, timeout_s)


@lru_cache(maxsize=16)
def _probe(
    python: str, modified_ns: int, env: tuple[tuple[str, str], ...], timeout_s: float
) -> KnownFlags:
    # modified_ns is part of the cache's key only: a reinstalled interpreter is asked again
    out, err, exit_code = _run([python, "-c", _PROGRAM], dict(env), timeout_s)
    line = next((row for row in reversed(out.splitlines()) if row.startswith(_MARK)), None)
    if exit_code != 0 or line is None:
        raise MachineError(
            f"SGLang did not list its flags (exit code {exit_code}): {_last_line(err)}",
            where=python,
            remedy="install SGLang for this interpreter or correct `python` of the server",
        )
    return KnownFlags.model_validate(json.loads(line.removeprefix(_MARK)))


def _run(argv: list[str], env: dict[str, str], timeout_s: float) -> tuple[str, str, int]:
    """Output, errors and exit code; the whole process group is gone afterwards."""
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise MachineError(
            f"cannot run the interpreter: {error.strerror}",
            where=argv[0],
            remedy="install the engine's environment or correct `python` of the server",
        ) from error
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException as error:
            # an interrupt counts too: nothing that was started here may go on
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise MachineError(
                f"SGLang did not list its flags within {timeout_s:g} s",
                where=argv[0],
                remedy="import sglang by hand in this interpreter and see where it hangs",
            ) from error
    return out, err, process.returncode


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "nothing was printed"
