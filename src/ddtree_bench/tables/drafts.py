"""Sums over verify steps: histogram of accepted drafts, tree depths and ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ddtree_bench.columns import DEPTHS, HISTOGRAM, POOLED, RANKS, TREES
from ddtree_bench.config import CLASSES
from ddtree_bench.records import RequestRecord, SpecCounts, TreeCounts
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.stats.acceptance import histogram_shares
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


class TreeTotals:
    """Sums over the requests of one tree server."""

    def __init__(self) -> None:
        self.steps = 0
        self.spine: int | None = 0
        """None once a request did not tell."""

    def add(self, tree: TreeCounts, spec: SpecCounts | None) -> None:
        """Add a request."""
        self.steps += 0 if spec is None else spec.verify_steps
        more = tree.spine_nodes
        self.spine = None if self.spine is None or more is None else self.spine + more


def _deepest(counts: Counts) -> int:
    """The largest depth with a count, 0 if there is none."""
    depths = np.flatnonzero(counts.array())
    return int(depths[-1]) + 1 if len(depths) > 0 else 0


def _shape(spine_share: float | None, off_spine_share: float | None) -> str:
    if spine_share == 1:
        return "a chain: every node is on the spine"
    if off_spine_share == 0:
        return "a chain in effect: nothing off the spine was accepted"
    return "a tree" if off_spine_share is not None else "not reported"


class DraftTables:
    """Collects sound cells, one after the other."""

    def __init__(self) -> None:
        self._histograms: dict[tuple[str, str], Counts] = defaultdict(Counts)
        self._nodes: dict[str, Counts] = defaultdict(Counts)
        self._accepted: dict[str, Counts] = defaultdict(Counts)
        self._ranks: dict[str, Counts] = defaultdict(Counts)
        self._grown: dict[str, Counts] = defaultdict(Counts)
        self._trees: dict[str, TreeTotals] = defaultdict(TreeTotals)

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
            if request.tree.accepted_by_node is not None:
                self._grown[server].add(request.tree.accepted_by_node)
            self._trees[server].add(request.tree, request.spec)

    def grown(self) -> dict[str, tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]]:
        """Accepted nodes in the order in which trees grew, and verify steps, by server."""
        return {
            server: (counts.array(), self._trees[server].steps)
            for server, counts in self._grown.items()
            if self._trees[server].steps > 0
        }

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables under their names."""
        return {
            HISTOGRAM.name: frame_of(self._histogram_rows(), HISTOGRAM),
            DEPTHS.name: frame_of(self._depth_rows(), DEPTHS),
            RANKS.name: frame_of(self._rank_rows(), RANKS),
            TREES.name: frame_of(self._tree_rows(), TREES),
        }

    def _tree_rows(self) -> Iterator[Mapping[str, Value]]:
        for server, totals in self._trees.items():
            nodes, accepted = self._nodes[server], self._accepted[server]
            ranks = self._ranks[server].array()
            all_nodes, off_spine = int(nodes.array().sum()), int(ranks[1:].sum())
            if all_nodes == 0:  # a chain of an engine that reports its width only
                continue
            steps = totals.steps or None
            spine = None if totals.spine is None else totals.spine / all_nodes
            off_share = off_spine / int(ranks.sum()) if ranks.sum() > 0 else None
            yield {
                "server": server,
                "steps": totals.steps,
                "nodes_per_step": steps and all_nodes / steps,
                "root_children": steps and nodes.at(0) / steps,
                "deepest": _deepest(nodes),
                "deepest_accepted": _deepest(accepted),
                "accepted_per_step": steps and int(accepted.array().sum()) / steps,
                "spine_share": spine,
                "off_spine_share": off_share,
                "shape": _shape(spine, off_share),
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
