"""Which rounds two servers were really measured in together, and which of them count."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from ddtree_bench.status import Status

Throttled = Collection[tuple[str, int]]
"""Launches, as server and number, during which a GPU slowed its clocks down."""

_KEY = ["server", "workload_class", "concurrency"]


class Rounds:
    """The rounds of a run by what happened, not by what they are numbered.

    A server that joins a run later gets the numbers of rounds long past. Its launches are told by
    their times: a launch of either side in another round lies between the two.
    """

    def __init__(self, cells: pd.DataFrame, throttled: Throttled = ()) -> None:
        """Take the table of cells (also failed ones) and the launches that are left out."""
        good = cells[cells["status"] == Status.OK.value]
        starts = good.groupby([*_KEY, "launch"])["started_unix_s"].min().reset_index()
        self._starts: dict[tuple[str, str, int], dict[int, float]] = {}
        for server, name, concurrency, launch, start_s in starts.itertuples(index=False):
            self._starts.setdefault((server, name, concurrency), {})[launch] = start_s
        self.throttled = frozenset(throttled)

    def interleaved(
        self, servers: Sequence[str], classes: Sequence[str], concurrency: int
    ) -> frozenset[int]:
        """Rounds in which both servers were measured side by side, in each of the classes."""
        one, other = servers
        found = [
            _side_by_side(
                self._starts.get((one, name, concurrency), {}),
                self._starts.get((other, name, concurrency), {}),
            )
            for name in classes
        ]
        return frozenset.intersection(*found) if found else frozenset()

    def left_out(self, servers: Sequence[str], rounds: Collection[int]) -> frozenset[int]:
        """Those of the rounds in which one of the servers was throttled; they go on both sides."""
        return frozenset(
            launch for launch in rounds if any((name, launch) in self.throttled for name in servers)
        )


def _side_by_side(one: Mapping[int, float], other: Mapping[int, float]) -> frozenset[int]:
    return frozenset(
        launch for launch in one.keys() & other.keys() if not _something_between(launch, one, other)
    )


def _something_between(launch: int, one: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """Whether a launch of another round started between the two of this round."""
    first, last = sorted((one[launch], other[launch]))
    return any(
        first < start_s < last
        for starts in (one, other)
        for number, start_s in starts.items()
        if number != launch
    )
