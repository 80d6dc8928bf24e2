"""Where the steps write their trees and paths: made once, so that a step allocates nothing.

Addresses are fixed, since captured graphs hold them. Trees and paths live no longer than their
step; what outlives it is the report, of which each step takes a copy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree_sglang.path import PathBatch
from ddtree_sglang.tree import NONE, TreeBatch


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of R requests.

    Attributes:
        trees: R trees of N nodes.
        positions: `[R, N]` int64, of the nodes in the text.
        numbers: `[R, N]` int64, 0, 1, …: each node's place in the batch.
        counts: `[R, L + 1]` int32, `tree.count_nodes`.
        path: R paths.
    """

    trees: TreeBatch
    positions: Tensor
    numbers: Tensor
    counts: Tensor
    path: PathBatch


class StepBuffers:
    """Buffers for batches of up to `rows` requests.

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
        self.rows, self.width, self.depth, self._topk = rows, width, depth, topk
        self._trees = TreeBatch.empty(rows, width, device)
        self._trees.parents.fill_(NONE)
        self._trees.tokens.zero_()
        self._trees.ranks.fill_(NONE)
        self._positions = torch.zeros_like(self._trees.tokens)
        self._numbers = torch.arange(rows * width, device=device).view(rows, width)
        self._counts = torch.zeros(rows, levels + 1, dtype=torch.int32, device=device)
        self._steps: dict[int, Step] = {}

    def of(self, requests: int) -> Step:
        """The space of a batch of R requests: the first R trees, and paths of its own."""
        if requests not in self._steps:
            trees = (getattr(self._trees, name)[:requests] for name in TreeBatch.__slots__)
            counts, device = self._counts.shape[1] + self._topk, self._counts.device
            self._steps[requests] = Step(
                TreeBatch(*trees),
                self._positions[:requests],
                self._numbers[:requests],
                self._counts[:requests],
                PathBatch.empty(requests, self.width, self.depth, counts, device),
            )
        return self._steps[requests]
