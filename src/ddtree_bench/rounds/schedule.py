"""The order of server launches: rounds, every second one mirrored (A B C, C B A)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtree_bench.config import Config


@dataclass(frozen=True, slots=True)
class Turn:
    """One launch of one server. `launch` counts from 1 and is the number of its round."""

    server: str
    launch: int
    priority: int
    """Higher runs first (Snakemake's meaning)."""


def schedule(servers: Sequence[str], launches: int) -> tuple[Turn, ...]:
    """Turns in the order in which they should run; a pure function of names and rounds.

    Mirroring makes a drift of the machine's speed that is linear in time cancel between servers.
    """
    order = [
        (server, launch)
        for launch in range(1, launches + 1)
        for server in (servers if launch % 2 else servers[::-1])
    ]
    return tuple(
        Turn(server, launch, priority=len(order) - place)
        for place, (server, launch) in enumerate(order)
    )


def schedule_of(config: Config) -> tuple[Turn, ...]:
    """The schedule of a configured run."""
    return schedule(tuple(config.servers), config.protocol.rounds)
