"""What the target accepts of a batch's trees, and where that goes.

The target's token at a node is the next token of the text if the node is accepted. So the path
starts at the root, and goes on to the child with the target's token while there is one; the token
at its end is the bonus token. `accept_paths` is the definition, for any device; `path_kernel` does
the same in one launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from ddtree_sglang.report import Report
from ddtree_sglang.tree import NONE, ROOT, TreeBatch

if TYPE_CHECKING:
    from ddtree_sglang.buffers import Step

DUMMY_SLOT: Final = 0
"""The cache slot that SGLang keeps for what nobody reads."""


@dataclass(frozen=True, slots=True, eq=False)
class PathBatch:
    """R accepted paths of up to D nodes below the root.

    Attributes:
        nodes: `[R, D + 1]` int32, the root first; `NONE` behind the end.
        rows: `[R, D + 1]` int64, each node's place among the batch's R × N; the root's behind
            the end.
        lens: `[R]` int32, nodes on the path, the root included.
        sources: `[R, D]` int64, cache slots of the nodes below the root.
        targets: `[R, D]` int64, slots where they belong; both are `DUMMY_SLOT` behind the end.
        report: what the host gets to know.
    """

    nodes: Tensor
    rows: Tensor
    lens: Tensor
    sources: Tensor
    targets: Tensor
    report: Report

    @classmethod
    def empty(
        cls, requests: int, width: int, depth: int, counts: int, device: torch.device
    ) -> PathBatch:
        """Space for R paths in trees of N nodes."""

        def integers(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(
            nodes=integers(requests, depth + 1, dtype=torch.int32),
            rows=integers(requests, depth + 1),
            lens=integers(requests, dtype=torch.int32),
            sources=integers(requests, depth),
            targets=integers(requests, depth),
            report=Report.empty(requests, width, counts, device),
        )


def accept_paths(
    step: Step, predicted: Tensor, prefix_lens: Tensor, slots: Tensor, limits: Tensor
) -> None:
    """Fill the step's paths.

    Args:
        step: its trees and their counts are there.
        predicted: `[R, N]`, the target's token after each node.
        prefix_lens: `[R]`, tokens before each tree.
        slots: `[R, N]`, cache slot of each node.
        limits: `[R]`, nodes that a path has at most, the root included.
    """
    trees, out, report = step.trees, step.path, step.path.report
    depth = out.nodes.shape[1] - 1
    nodes = _walk(trees, predicted, limits, depth)
    on_path, safe = nodes != NONE, nodes.clamp(min=ROOT)
    width, places = trees.tokens.shape[1], torch.arange(len(nodes), device=nodes.device)
    lens = on_path.sum(1)
    tokens = predicted.gather(1, safe).masked_fill(~on_path, 0).long()
    out.nodes.copy_(nodes)
    out.rows.copy_(places[:, None] * width + safe)
    out.lens.copy_(lens)
    below, ended = safe[:, 1:], ~on_path[:, 1:]
    out.sources.copy_(slots.gather(1, below).masked_fill(ended, DUMMY_SLOT))
    out.targets.copy_(slots[:, 1 : depth + 1].masked_fill(ended, DUMMY_SLOT))
    report.tokens.zero_()
    report.tokens[:, : depth + 1] = tokens
    report.bonus.copy_(tokens[places, lens - 1])
    report.new_lens.copy_(prefix_lens + lens)
    report.lens.copy_(lens)
    ranks = trees.ranks.gather(1, below).masked_fill(ended, NONE)
    rank = torch.arange(report.counts.shape[1] - step.counts.shape[1], device=ranks.device)
    by_rank = (ranks[:, None, :] == rank[:, None]).sum(-1)
    report.counts.copy_(torch.cat([step.counts, by_rank], dim=1))


def _walk(trees: TreeBatch, predicted: Tensor, limits: Tensor, depth: int) -> Tensor:
    """`[R, D + 1]` int64, the nodes of the paths, `NONE` behind the end."""
    at = torch.full_like(predicted[:, 0], ROOT, dtype=torch.int64)
    nodes = torch.full((len(at), depth + 1), NONE, dtype=torch.int64, device=at.device)
    nodes[:, 0] = at
    live = torch.ones_like(at, dtype=torch.bool)
    for step in range(1, depth + 1):
        wanted = predicted.gather(1, at[:, None])
        is_next = (trees.parents == at[:, None]) & (trees.tokens == wanted)
        is_next &= (live & (limits > step))[:, None]
        live = is_next.any(1)
        at = torch.where(live, is_next.int().argmax(1), at)
        nodes[:, step] = torch.where(live, at, NONE)
    return nodes
