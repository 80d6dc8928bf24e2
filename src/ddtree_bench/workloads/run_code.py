"""Whether a generated program runs to its end, in a process that can reach and keep nothing.

Limits of time, memory and files are set by `_confined.py`; the network is taken away by Linux (a
name space of its own, `unshare`), which some machines do not allow to ordinary users.
"""

from __future__ import annotations

import functools
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, Literal

from ddtree_bench.errors import MachineError

RunCode = bool | Literal["unisolated"]

WALL_S: Final = 10.0
_SCRIPT: Final = Path(__file__).with_name("_confined.py")


def require_isolation(run_code: RunCode) -> None:
    """Raise MachineError if code is to run without network and this machine cannot do that."""
    if run_code is True and not without_network():
        raise MachineError(
            "generated code cannot be kept off the network here",
            where="`unshare --user --net` fails",
            remedy="`run_code: unisolated` to run it all the same, or `run_code: false`",
        )


@functools.cache
def without_network() -> tuple[str, ...]:
    """The command that starts another without network; empty where this is not allowed."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    command = (unshare, "--user", "--net", "--")
    tried = subprocess.run([*command, sys.executable, "-c", ""], capture_output=True, check=False)
    return command if tried.returncode == 0 else ()


def fault_of_program(program: str) -> str | None:
    """What went wrong when the program ran; None if it ran to its end."""
    token = secrets.token_hex(16)
    try:
        ran = subprocess.run(
            [*without_network(), sys.executable, "-I", "-B", str(_SCRIPT)],
            input=f"{token}\n{program}".encode(errors="replace"),
            capture_output=True,
            timeout=WALL_S,
            check=False,
            env={},
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return f"not done after {WALL_S:g} s"
    if ran.returncode == 0 and ran.stdout == token.encode():
        return None
    if ran.returncode < 0:
        return f"ended by signal {-ran.returncode}: too much time or memory"
    told = ran.stderr.decode(errors="replace").strip().splitlines()
    return told[-1] if told else "ended before its tests did"
