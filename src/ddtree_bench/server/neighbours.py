"""Which process of somebody else's was busiest between two moments.

Processes are looked at outside the measured window only, so that looking disturbs nothing; what
came and went within the window shows in the host's counters (`telemetry.HostSampler`) instead.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import psutil

BUSY_CPUS: Final = 0.10
"""CPUs that one other process may take on average before a measurement is flagged."""


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU time of one process so far."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Look:
    """CPU time of every process that could be asked, under its id and time of creation."""

    at_s: float
    """By the monotonic clock."""
    spent: dict[tuple[int, float], Spent]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A process that is neither the client nor the server."""

    name: str
    cpus: float
    """CPUs that it took on average."""

    @property
    def disturbs(self) -> bool:
        """Whether it took more than BUSY_CPUS."""
        return self.cpus > BUSY_CPUS

    def __str__(self) -> str:
        return f"{self.name}: {self.cpus:.0%} of a CPU"


def look() -> Look:
    """The processes now; those that end meanwhile or may not be asked are left out."""
    spent = {}
    for process in psutil.process_iter(["pid", "name", "cpu_times", "create_time"]):
        times = process.info["cpu_times"]
        if times is not None:
            key = (process.info["pid"], process.info["create_time"])
            spent[key] = Spent(process.info["name"] or "?", times.user + times.system)
    return Look(time.monotonic(), spent)


def busiest(before: Look, after: Look, own: Collection[int]) -> Neighbour | None:
    """The process of others that took most CPU time; None if there was none or no time passed.

    A process that was not there before counts with all its time.
    """
    elapsed_s = after.at_s - before.at_s
    if elapsed_s <= 0:
        return None
    taken = [
        Neighbour(spent.name, (spent.seconds - _seconds(before, key)) / elapsed_s)
        for key, spent in after.spent.items()
        if key[0] not in own
    ]
    return max(taken, key=lambda neighbour: neighbour.cpus, default=None)


def _seconds(look: Look, key: tuple[int, float]) -> float:
    known = look.spent.get(key)
    return 0.0 if known is None else known.seconds
