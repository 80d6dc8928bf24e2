"""Flags of an installed SGLang, kept from one session to the next.

To list them SGLang imports itself, which takes ten seconds and more on every launch; what is
installed can be told without importing it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ddtree_bench.hashing import json_sha256
from ddtree_bench.server.flags import KnownFlags

FOLDER: Final = ".sglang-flags"
"""Below the folder of results."""
_PATIENCE_S: Final = 60.0
_MARK: Final = "ddtree-bench installed: "
_PROGRAM: Final = """
import json, sys
from importlib import metadata, util
from pathlib import Path

def newest(package):
    places = util.find_spec(package).submodule_search_locations
    return max(file.stat().st_mtime_ns for place in places for file in Path(place).glob("*.py"))

stock = Path(util.find_spec("sglang").origin).parent / "srt" / "server_args.py"
plugins = metadata.entry_points(group="sglang.srt.plugins")
found = {
    "version": metadata.version("sglang"),
    "arguments": [str(stock), stock.stat().st_mtime_ns, stock.stat().st_size],
    "plugins": sorted(
        [one.name, one.value, newest(one.value.partition(":")[0].partition(".")[0])]
        for one in plugins
    ),
}
print(sys.argv[1] + json.dumps(found))
"""


def place_of(results: Path, python: Path, env: Mapping[str, str]) -> Path | None:
    """Where the flags of what this interpreter has installed are kept; None if it cannot tell.

    Args:
        results: folder of all runs.
        python: interpreter of a server.
        env: the server's whole environment; it chooses plug-ins.
    """
    try:
        asked = subprocess.run(
            [str(python), "-c", _PROGRAM, _MARK],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    line = next((row for row in asked.stdout.splitlines() if row.startswith(_MARK)), None)
    if asked.returncode != 0 or line is None:
        return None
    installed = json.loads(line.removeprefix(_MARK))
    key = json_sha256({"python": str(python), "env": dict(env), "installed": installed})
    return results / FOLDER / f"{key}.json"


def read_kept(place: Path | None) -> KnownFlags | None:
    """The kept flags; None if there are none, or not as they were written."""
    if place is None or not place.exists():
        return None
    try:
        return KnownFlags.model_validate_json(place.read_bytes())
    except ValidationError:
        return None


def keep(place: Path | None, known: KnownFlags) -> None:
    """Keep the flags for the next session."""
    if place is not None and not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(known.model_dump_json(), encoding="utf-8")
