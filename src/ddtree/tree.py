"""Draft trees from per-depth log-probabilities.

Shape letters: L depths, V vocabulary, K candidates a depth, B budget, N nodes with the root.
Source: DDTree, arXiv 2604.12989, best-first construction.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

ROOT: Final = 0
"""Index of the node that holds the bonus token."""
NO_PARENT: Final = -1
"""Parent of the root."""
NO_RANK: Final = -1
"""Rank of the root: the target chose its token, not the drafter."""


class Candidate(NamedTuple):
    """A token that the drafter proposes at one depth."""

    log_prob: float
    token: int


@dataclass(frozen=True, slots=True, eq=False)
class DraftTree:
    """Drafted prefixes as one tree, the bonus token at the root, parents before children.

    Attributes:
        tokens: `[N]` int64, token ids.
        parents: `[N]` int64, index of the parent; `NO_PARENT` for the root.
        depths: `[N]` int64, 0 for the root.
        ranks: `[N]` int64, place of the token among the candidates of its depth; `NO_RANK` for
            the root.
        scores: `[N]` float32, nats, log-probability of the prefix under the drafter; 0 for the
            root.
        mask: `[N, N]` bool, `mask[i, j]` if j is i or its ancestor.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    ranks: Tensor
    scores: Tensor
    mask: Tensor

    def __len__(self) -> int:
        """N, the width of the verify pass."""
        return len(self.tokens)


class _Node(NamedTuple):
    """A prefix in heap order: best score, then shallow, then smaller rank path.

    Every successor of a node comes after it in this order, so the heap yields prefixes sorted.
    """

    cost: float
    depth: int
    path: tuple[int, ...]
    parent: int
    parent_score: float


def build_tree(log_probs: Tensor, root: int, budget: int, topk: int) -> DraftTree:
    """Return the `budget` most probable draft prefixes as one tree.

    Args:
        log_probs: `[L, V]` float32, nats; row d is the drafter's distribution at depth d + 1.
        root: token id of the bonus token, node 0.
        budget: nodes besides the root; 0 gives the root alone.
        topk: candidates a depth, at most V are used; 1 gives the chain.

    Returns:
        The tree, N ≤ budget + 1. A prefix of probability zero is never a node. Equal scores:
        smaller depth first, then smaller rank path; equal log-probabilities at one depth are
        ranked by token id.

    Raises:
        ValueError: budget < 0, topk < 1, log_probs not `[L, V]` float32, or a candidate that is
            not a log-probability (NaN or above 0).

    Source: DDTree, arXiv 2604.12989, best-first construction.
    """
    if budget < 0:
        raise ValueError(f"budget must be 0 or more, got {budget}")
    return grow_tree(rank_candidates(log_probs, topk), root, budget)


def rank_candidates(log_probs: Tensor, topk: int) -> list[list[Candidate]]:
    """Return at most `topk` candidates for each row of `[L, V]`, most probable first.

    Equal log-probabilities are ordered by token id; tokens of probability zero are left out.
    Raises ValueError as `build_tree` does.
    """
    if topk < 1:
        raise ValueError(f"topk must be 1 or more, got {topk}")
    if log_probs.ndim != 2 or log_probs.dtype != torch.float32:
        raise ValueError(
            f"log_probs must be [L, V] float32, got {list(log_probs.shape)} {log_probs.dtype}"
        )
    if log_probs.numel() == 0:
        return [[] for _ in log_probs]
    kth = log_probs.topk(min(topk, log_probs.shape[1])).values[:, -1:]
    # topk leaves open which of several equals it keeps, so all that reach the last place run.
    # `~(<)` rather than `>=` lets a NaN through to the check.
    rows, tokens = (~(log_probs < kth)).nonzero(as_tuple=True)
    values = log_probs[rows, tokens].numpy(force=True)
    if np.isnan(values).any() or values.max() > 0.0:
        raise ValueError("log_probs holds NaN or a value above 0: pass log_softmax of the logits")
    return _sort_candidates(rows.numpy(force=True), tokens.numpy(force=True), values, topk)


def _sort_candidates(
    rows: np.ndarray, tokens: np.ndarray, values: np.ndarray, topk: int
) -> list[list[Candidate]]:
    """Return the candidates of each row in order, cut to `topk` and to finite values.

    All three `[M]`; `rows` ascending and `tokens` ascending within a row, every row present.
    """
    ranked: list[list[Candidate]] = []
    for chosen in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows)) + 1):
        order = chosen[np.argsort(-values[chosen], kind="stable")][:topk]
        finite = order[np.isfinite(values[order])]
        ranked.append(
            [
                Candidate(float(v), int(t))
                for v, t in zip(values[finite], tokens[finite], strict=True)
            ]
        )
    return ranked


def grow_tree(candidates: Sequence[Sequence[Candidate]], root: int, budget: int) -> DraftTree:
    """Return the tree of the `budget` best prefixes; `candidates[d]` holds depth d + 1, sorted."""
    nodes: list[_Node] = []
    tokens = [root]
    heap: list[_Node] = []

    def offer(depth: int, path: tuple[int, ...], parent: int, parent_score: float) -> None:
        if depth <= len(candidates) and path[-1] < len(candidates[depth - 1]):
            score = _add_fp32(parent_score, candidates[depth - 1][path[-1]].log_prob)
            heapq.heappush(heap, _Node(-score, depth, path, parent, parent_score))

    offer(1, (0,), ROOT, 0.0)
    while heap and len(nodes) < budget:
        node = heapq.heappop(heap)
        nodes.append(node)
        tokens.append(candidates[node.depth - 1][node.path[-1]].token)
        offer(node.depth, (*node.path[:-1], node.path[-1] + 1), node.parent, node.parent_score)
        offer(node.depth + 1, (*node.path, 0), len(nodes), -node.cost)
    return _assemble(tokens, nodes)


def _add_fp32(a: float, b: float) -> float:
    """Return a + b as float32 arithmetic gives it, so that ties are those of the tensors."""
    return float(np.float32(a) + np.float32(b))


def _assemble(tokens: list[int], nodes: list[_Node]) -> DraftTree:
    """Return the tensors of a tree whose nodes besides the root come in order."""
    parents = [NO_PARENT, *(node.parent for node in nodes)]
    return DraftTree(
        tokens=torch.tensor(tokens),
        parents=torch.tensor(parents),
        depths=torch.tensor([0, *(node.depth for node in nodes)]),
        ranks=torch.tensor([NO_RANK, *(node.path[-1] for node in nodes)]),
        scores=torch.tensor([0.0, *(-node.cost for node in nodes)]),
        mask=_ancestors(parents),
    )


def _ancestors(parents: list[int]) -> Tensor:
    """Return the `[N, N]` bool mask of a parents-first tree: each node sees its path."""
    mask = np.eye(len(parents), dtype=np.bool_)
    for node, parent in enumerate(parents[1:], start=1):
        mask[node] |= mask[parent]
    return torch.from_numpy(mask)


def spine_nodes(tree: DraftTree) -> int:
    """Return how many nodes besides the root lie on the spine: rank 0 all the way down."""
    on_spine = [True]
    for parent, rank in zip(tree.parents.tolist()[1:], tree.ranks.tolist()[1:], strict=True):
        on_spine.append(rank == 0 and on_spine[parent])
    return sum(on_spine) - 1
