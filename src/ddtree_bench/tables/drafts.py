"""Sums over verify steps: histogram of accepted drafts, tree depths and ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ddtree_bench.columns import DEPTHS, HISTOGRAM, POOLED, RANKS
from ddtree_bench.config import CLASSES
from ddtree_bench.records import RequestRecord
from ddtree_bench.stats.acceptance import histogram_shares
from ddtree_bench.store import MeasuredCell
from ddtree_bench.tables.rows import Value, frame_of


class Counts:
    """Counts by index that grow as needed."""

    def __init__(self) -> None:
        self._counts: list[int] = []

    def add(self, counts: Sequence[int] | None) -> None:
        """Add entry by entry; None adds nothing."""
        more = counts or ()
        self._counts.extend([0] * (len(more) - len(self._counts)))
        for index, count in enumerate(more):
            self._counts[index] += count

    def at(self, index: int) -> int:
        """The count at an index, 0 beyond the end."""
        return self._counts[index] if index < len(self._counts) else 0

    def __len__(self) -> int:
        return len(self._counts)

    def array(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """All counts, `[len]`."""
        return np.array(self._counts, dtype=np.int64)


class DraftTables:
    """Collects sound cells, one after the other."""

    def __init__(self) -> None:
        self._histograms: dict[tuple[str, str], Counts] = defaultdict(Counts)
        self._nodes: dict[str, Counts] = defaultdict(Counts)
        self._accepted: dict[str, Counts] = defaultdict(Counts)
        self._ranks: dict[str, Counts] = defaultdict(Counts)

    def add_cell(self, measured: MeasuredCell) -> None:
        """Take a cell that enters statistics."""
        server, workload_class = measured.cell.cell.server, measured.cell.workload_class
        for request in measured.requests:
            if request.spec is not None:
                self._histograms[server, workload_class].add(request.spec.histogram)
            if workload_class in CLASSES:
                self._add_pooled(server, request)

    def _add_pooled(self, server: str, request: RequestRecord) -> None:
        if request.spec is not None:
            self._histograms[server, POOLED].add(request.spec.histogram)
        if request.tree is not None:
            self._nodes[server].add(request.tree.nodes_by_depth)
            self._accepted[server].add(request.tree.accepted_by_depth)
            self._ranks[server].add(request.tree.accepted_by_rank)

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables under their names."""
        return {
            HISTOGRAM.name: frame_of(self._histogram_rows(), HISTOGRAM),
            DEPTHS.name: frame_of(self._depth_rows(), DEPTHS),
            RANKS.name: frame_of(self._rank_rows(), RANKS),
        }

    def _histogram_rows(self) -> Iterator[Mapping[str, Value]]:
        for (server, workload_class), counts in self._histograms.items():
            if counts.array().sum() == 0:
                continue
            for accepted, share in enumerate(histogram_shares(counts.array())):
                yield {
                    "server": server,
                    "workload_class": workload_class,
                    "accepted_drafts": accepted,
                    "steps": counts.at(accepted),
                    "share": float(share),
                }

    def _depth_rows(self) -> Iterator[Mapping[str, Value]]:
        for server, nodes in self._nodes.items():
            accepted = self._accepted[server]
            for depth in range(max(len(nodes), len(accepted))):
                yield {
                    "server": server,
                    "depth": depth + 1,
                    "nodes": nodes.at(depth),
                    "accepted": accepted.at(depth),
                }

    def _rank_rows(self) -> Iterator[Mapping[str, Value]]:
        for server, ranks in self._ranks.items():
            for rank in range(len(ranks)):
                yield {"server": server, "rank": rank, "accepted": ranks.at(rank)}
