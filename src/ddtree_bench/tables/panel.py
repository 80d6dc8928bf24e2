"""One measured value per launch and prompt unit, cut into the blocks that the formulas take."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ddtree_bench.config import CLASSES
from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.compare import Blocks, LaunchNoise, launch_noise
from ddtree_bench.stats.interval import FloatArray, IntArray
from ddtree_bench.tables.rows import grouped

_GRID = ("server", "workload_class", "concurrency")
_INDEX = (*_GRID, "launch", "unit")


@dataclass(frozen=True, slots=True)
class Grid:
    """One server's values in one class: `[L, U]` for ascending launches and unit numbers."""

    launches: IntArray
    units: IntArray
    values: FloatArray
    """NaN where a unit was not measured in a launch."""

    def complete_units(self, launches: IntArray) -> IntArray:
        """Units with a value in every one of these launches."""
        rows = np.searchsorted(self.launches, launches)
        units: IntArray = self.units[~np.isnan(self.values[rows]).any(axis=0)]
        return units

    def block(self, launches: IntArray, units: IntArray) -> FloatArray:
        """The values of these launches and units, all of which it has."""
        rows, columns = np.searchsorted(self.launches, launches), np.searchsorted(self.units, units)
        block: FloatArray = self.values[np.ix_(rows, columns)]
        return block


@dataclass(frozen=True, slots=True)
class Matched:
    """Servers cut to what all of them have: launches and, in each class, prompt units."""

    launches: tuple[int, ...]
    blocks: tuple[Blocks, ...]
    """A server each, in the order asked for."""

    @property
    def n_prompts(self) -> int:
        """Prompt units over all classes."""
        return sum(block.shape[1] for block in self.blocks[0])


class Panel:
    """Logarithms of a value by server, class, concurrency, launch and unit; repeats averaged."""

    def __init__(self, frame: pd.DataFrame, value: str) -> None:
        """Take the rows of `frame` with a `value` above 0; it needs the columns of `_INDEX`."""
        rows = frame[frame[value] > 0]
        logs = rows.assign(log=np.log(rows[value].to_numpy(dtype=np.float64)))
        means = logs.groupby(list(_INDEX))["log"].mean().reset_index()
        # unit numbers instead of names: matching sides is most of the work of a large run
        numbers, self._units = pd.factorize(means["unit"], sort=True)
        numbered = means.assign(unit=numbers)
        self._grids = {key: _grid(group) for key, group in grouped(numbered, _GRID).items()}
        self._servers = sorted({server for server, _, _ in self._grids})
        self._noise: dict[tuple[tuple[str, ...], int], LaunchNoise] = {}

    @property
    def servers(self) -> frozenset[str]:
        """Servers that have a value."""
        return frozenset(self._servers)

    def launches(self, server: str, workload_class: str, concurrency: int) -> frozenset[int]:
        """Launches with a value; empty if there is none."""
        grid = self._grids.get((server, workload_class, concurrency))
        return frozenset() if grid is None else frozenset(grid.launches.tolist())

    def complete(self, server: str, workload_class: str, concurrency: int) -> frozenset[str]:
        """Units with a value in every launch that has this class: those of its own level."""
        grid = self._grids.get((server, workload_class, concurrency))
        if grid is None:
            return frozenset()
        return frozenset(self._units[grid.complete_units(grid.launches)])

    def shared_classes(self, servers: Sequence[str], concurrency: int) -> tuple[str, ...]:
        """Those of the five classes that all servers have in at least one launch in common."""
        return tuple(
            name
            for name in CLASSES
            if frozenset.intersection(*(self.launches(s, name, concurrency) for s in servers))
        )

    def matched(
        self,
        servers: Sequence[str],
        classes: Sequence[str],
        concurrency: int,
        rounds: Collection[int] | None = None,
    ) -> Matched:
        """The servers' values in the launches and on the units that all of them have.

        A unit that lacks a value in one of these launches is left out on all sides; so is a launch
        that is not among `rounds`, if those are given.

        Raises:
            NotEnoughData: nothing is shared.
        """
        found = [self.launches(server, name, concurrency) for server in servers for name in classes]
        shared = frozenset.intersection(*found) if found else frozenset()
        launches = tuple(sorted(shared if rounds is None else shared.intersection(rounds)))
        if not launches:
            raise NotEnoughData(0, 1, "rounds in common")
        chosen = np.array(launches)
        by_class = [self._class_blocks(servers, (name, concurrency), chosen) for name in classes]
        return Matched(launches, tuple(zip(*by_class, strict=True)))

    def _class_blocks(
        self, servers: Sequence[str], key: tuple[str, int], launches: IntArray
    ) -> list[FloatArray]:
        """A block `[L, n_c]` a server, all of the same units."""
        grids = [self._grids[(server, *key)] for server in servers]
        units = grids[0].complete_units(launches)
        for grid in grids[1:]:
            units = np.intersect1d(units, grid.complete_units(launches), assume_unique=True)
        if len(units) == 0:
            raise NotEnoughData(0, 1, "prompts in common")
        return [grid.block(launches, units) for grid in grids]

    def noise(self, classes: Sequence[str], concurrency: int) -> LaunchNoise:
        """Noise between launches, pooled over all servers that have these classes.

        Raises NotEnoughData if none has two launches.
        """
        key = (tuple(classes), concurrency)
        if key not in self._noise:
            self._noise[key] = launch_noise(list(self._own_blocks(classes, concurrency)))
        return self._noise[key]

    def _own_blocks(self, classes: Sequence[str], concurrency: int) -> list[Blocks]:
        """Every server's own launches, in all of which it has all these classes."""
        blocks = []
        for server in self._servers:
            try:
                blocks.append(self.matched([server], classes, concurrency).blocks[0])
            except NotEnoughData:  # it lacks a class: it says nothing about these
                continue
        return blocks


def _grid(group: pd.DataFrame) -> Grid:
    # by hand, as pandas' pivot is most of the time of a large run
    launches, rows = np.unique(group["launch"].to_numpy(dtype=np.int64), return_inverse=True)
    units, columns = np.unique(group["unit"].to_numpy(dtype=np.int64), return_inverse=True)
    values = np.full((len(launches), len(units)), np.nan)
    values[rows, columns] = group["log"].to_numpy(dtype=np.float64)
    return Grid(launches, units, values)
