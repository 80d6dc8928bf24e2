"""Turn signals, and the death of the Snakemake that started us, into an orderly exit."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Self

_LOOK_EVERY_S = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(SystemExit):
    """The run was told to end; the exit code is 128 + the signal's number, as shells say it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


@dataclass(frozen=True, slots=True)
class Guardian:
    """The Snakemake process that waits for this session; it may be killed and leave us alone.

    Between Snakemake and a session stands a shell, so that the parent's id alone does not tell.
    """

    pid: int
    born: bytes
    """Start time in clock ticks: a process id may be given out again."""

    @classmethod
    def find(cls, pid: int | None = None) -> Self | None:
        """The nearest ancestor that is a Snakemake; None if a person started the session."""
        pid = os.getppid() if pid is None else pid
        while pid > 1:
            stat = _stat(pid)
            if stat is None:
                return None
            if _is_snakemake(Path(f"/proc/{pid}/cmdline").read_bytes()):
                return cls(pid, stat[_BORN])
            pid = int(stat[_PARENT])
        return None

    def is_gone(self) -> bool:
        """Whether that very process has ended."""
        stat = _stat(self.pid)
        return stat is None or stat[_BORN] != self.born or stat[_STATE] in (b"Z", b"X")


def exit_in_order() -> None:
    """From now on a signal raises `Interrupted` in the main thread, once; later ones are ignored.

    So the teardown that the first one causes is not torn itself.
    """
    for number in _SIGNALS:
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup
        signal.signal(number, _interrupt)
    guardian = Guardian.find()
    if guardian is not None:
        _watch(guardian)


def _is_snakemake(command_line: bytes) -> bool:
    """Whether a program or module called snakemake runs; further arguments may hold any word."""
    parts = [PurePosixPath(os.fsdecode(part)) for part in command_line.split(b"\0")[:5]]
    return any(part.name == "snakemake" or part.parent.name == "snakemake" for part in parts)


def _watch(guardian: Guardian) -> None:
    def look(number: int, frame: FrameType | None) -> None:
        if guardian.is_gone():
            print("Snakemake is gone: stopping the server", file=sys.stderr, flush=True)
            _interrupt(signal.SIGTERM, frame)

    signal.signal(signal.SIGALRM, look)
    # the interpreter's teardown puts the default action back: an alarm would kill it half-way
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_EVERY_S, _LOOK_EVERY_S)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


_STATE, _PARENT, _BORN = 0, 1, 19
"""Places in `/proc/PID/stat`, counted behind the process's name (proc(5))."""


def _stat(pid: int) -> list[bytes] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
