"""Where the steps write their trees and paths: made once, so that a step allocates nothing.

What a step wrote is copied to the host while the next step runs, and the scheduler waits for that
copy before it starts the one after. So two sets take turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree_sglang.path import PathBatch
from ddtree_sglang.tree import TreeBatch


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of R requests.

    Attributes:
        trees: R trees of N nodes.
        positions: `[R, N]` int64, of the nodes in the text.
        numbers: `[R, N]` int64, 0, 1, …: each node's place in the batch.
        counts: `[R, L + 1 + K]` int32: nodes a depth, deepest depth, accepted nodes a rank.
        path: R paths; its `ranks` are the last columns of `counts`.
    """

    trees: TreeBatch
    positions: Tensor
    numbers: Tensor
    counts: Tensor
    path: PathBatch


class StepBuffers:
    """Two sets of buffers for batches of up to `rows` requests.

    Args:
        rows: requests at most.
        width: N.
        levels: L, depths that are drafted.
        topk: K.
        depth: D, the longest path below the root.
        device: where.
    """

    def __init__(
        self, rows: int, width: int, levels: int, topk: int, depth: int, device: torch.device
    ) -> None:
        self._sizes = (rows, width, levels, topk, depth)
        self._sets = [self._make(device) for _ in range(2)]
        self._views: list[dict[int, Step]] = [{}, {}]
        self._turn = 0

    def next(self, requests: int) -> Step:
        """The first R rows of the set whose turn it is."""
        self._turn = 1 - self._turn
        views = self._views[self._turn]
        if requests not in views:
            views[requests] = _first(self._sets[self._turn], requests)
        return views[requests]

    def _make(self, device: torch.device) -> Step:
        rows, width, levels, topk, depth = self._sizes
        counts = torch.zeros(rows, levels + 1 + topk, dtype=torch.int32, device=device)
        trees = TreeBatch.empty(rows, width, device)
        return Step(
            trees=trees,
            positions=torch.empty_like(trees.tokens),
            numbers=torch.arange(rows * width, device=device).view(rows, width),
            counts=counts,
            path=PathBatch.empty(rows, width, depth, counts[:, levels + 1 :]),
        )


def _first(step: Step, requests: int) -> Step:
    """Views of the first R rows."""
    trees = (getattr(step.trees, name)[:requests] for name in TreeBatch.__slots__)
    path = (getattr(step.path, name)[:requests] for name in PathBatch.__slots__)
    return Step(
        TreeBatch(*trees),
        step.positions[:requests],
        step.numbers[:requests],
        step.counts[:requests],
        PathBatch(*path),
    )
