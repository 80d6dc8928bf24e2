"""Draft trees of a batch, grown on the device without waiting for it.

The B best prefixes come out one at a time. Each node has one open child, the best candidate at the
next depth that it does not have yet, so a round looks at one number a node and takes the largest.
Equal scores: smaller depth first, then the smaller rank path; `order` holds each node's place among
the rank paths of its depth, so paths are never compared.

`grow_trees` is the definition, for any device; `tree_kernel` does the same in one launch.
Both give, node for node, what `ddtree.tree.grow_tree` gives for one request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

ROOT: Final = 0
NONE: Final = -1
"""No parent, no child, no sibling, no rank."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeBatch:
    """R trees of N nodes each, parents before children, node 0 the bonus token.

    Where fewer than B prefixes have a probability above zero, the last nodes are unused: they
    have the root's token and depth, no parent, and no node links to them.

    Attributes:
        tokens: `[R, N]` int64.
        parents: `[R, N]` int32, `NONE` for the root and for unused nodes.
        depths: `[R, N]` int32, 0 for the root.
        ranks: `[R, N]` int32, place among the candidates of the depth, `NONE` without a parent.
        scores: `[R, N]` float32, nats, of the prefix; 0 for the root, −inf for unused nodes.
        children: `[R, N]` int64, first child.
        siblings: `[R, N]` int64, next child of the same parent.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    ranks: Tensor
    scores: Tensor
    children: Tensor
    siblings: Tensor

    @classmethod
    def empty(cls, requests: int, width: int, device: torch.device) -> TreeBatch:
        """Space for R trees; what it holds is undefined."""
        links = torch.empty(3, requests, width, dtype=torch.int64, device=device)
        shape = torch.empty(3, requests, width, dtype=torch.int32, device=device)
        scores = torch.empty(requests, width, dtype=torch.float32, device=device)
        return cls(links[0], shape[0], shape[1], shape[2], scores, links[1], links[2])

    def copy_(self, other: TreeBatch) -> None:
        """Take over another batch's trees of the same shape."""
        for name in self.__slots__:
            getattr(self, name).copy_(getattr(other, name))


def check_candidates(log_probs: Tensor, tokens: Tensor, bonus: Tensor) -> None:
    """Raise ValueError unless shapes are `[R, L, K]`, `[R, L, K]`, `[R]` and types fit."""
    wanted = (log_probs.shape, torch.float32, torch.int64, log_probs.shape[:1])
    found = (tokens.shape, log_probs.dtype, tokens.dtype, bonus.shape)
    if log_probs.ndim != 3 or found != wanted:
        raise ValueError(
            "candidates must be [R, L, K] float32 and int64 with [R] bonus tokens, got "
            f"{list(log_probs.shape)} {log_probs.dtype}, {list(tokens.shape)} {tokens.dtype}, "
            f"{list(bonus.shape)}"
        )


def grow_trees(log_probs: Tensor, tokens: Tensor, bonus: Tensor, width: int) -> TreeBatch:
    """Return the trees of the N − 1 most probable prefixes of each request.

    Args:
        log_probs: `[R, L, K]` float32, nats, descending along K; −inf is never a node.
        tokens: `[R, L, K]` int64, token ids of the candidates.
        bonus: `[R]`, token ids of the roots.
        width: N.

    Raises:
        ValueError: shapes or types do not fit.
    """
    check_candidates(log_probs, tokens, bonus)
    growth = _Growth(log_probs, tokens, bonus, width)
    for node in range(1, width):
        growth.add(node)
    return growth.trees


class _Growth:
    """R trees with the nodes added so far; see the module's head for `order` and open children."""

    def __init__(self, log_probs: Tensor, tokens: Tensor, bonus: Tensor, width: int) -> None:
        requests, self.levels, self.topk = log_probs.shape
        device = log_probs.device
        self.steps = log_probs.flatten(1)  # [R, L × K]
        self.ids = tokens.flatten(1)
        self.rows = torch.arange(requests, device=device)
        self.nodes = torch.arange(width, device=device)
        zeros = torch.zeros(requests, width, dtype=torch.int64, device=device)
        self.taken, self.order, self.parent_order = zeros.clone(), zeros.clone(), zeros.clone()
        self.trees = TreeBatch.empty(requests, width, device)
        self.trees.tokens.copy_(bonus[:, None].expand_as(zeros))
        for links in (self.trees.parents, self.trees.ranks, self.trees.children):
            links.fill_(NONE)
        self.trees.siblings.fill_(NONE)
        self.trees.depths.zero_()
        self.trees.scores.fill_(-torch.inf)
        self.trees.scores[:, ROOT] = 0.0

    def add(self, node: int) -> None:
        """Add the best open child as `node`, in each tree that has one."""
        trees, rows = self.trees, self.rows
        at = trees.depths * self.topk + self.taken  # [R, N], candidate of each open child
        closed = (trees.depths >= self.levels) | (self.taken >= self.topk)
        steps = self.steps.gather(1, at.masked_fill(closed, 0)).masked_fill(closed, -torch.inf)
        values = trees.scores + steps
        best = values.amax(1)  # [R]
        parent = self._first_in_order(values == best[:, None])
        live = best > -torch.inf
        depth, rank = trees.depths[rows, parent], self.taken[rows, parent]
        token = self.ids[rows, at[rows, parent].masked_fill(~live, 0)]
        order = self._insert(node, depth + 1, self.order[rows, parent], live)
        self._link(node, parent, rank, live)
        self.taken[rows, parent] += live.int()
        self.order[:, node] = order
        self.parent_order[:, node] = self.order[rows, parent]
        trees.scores[:, node] = best
        trees.tokens[:, node] = torch.where(live, token, trees.tokens[:, ROOT])
        trees.parents[:, node] = torch.where(live, parent, NONE).int()
        trees.ranks[:, node] = torch.where(live, rank, NONE).int()
        trees.depths[:, node] = torch.where(live, depth + 1, 0).int()

    def _first_in_order(self, equals: Tensor) -> Tensor:
        """`[R]`, of equally scored open children the parent of the first: by depth, then path."""
        width = len(self.nodes)
        key = self.trees.depths * width + self.order
        return key.masked_fill(~equals, torch.iinfo(torch.int64).max).argmin(1)

    def _insert(self, node: int, depth: Tensor, parent_order: Tensor, live: Tensor) -> Tensor:
        """`[R]`, the new node's order; moves up all orders behind it."""
        peers = (self.trees.depths == depth[:, None]) & live[:, None]
        before = peers & (self.parent_order <= parent_order[:, None])
        order = before.sum(1)
        self.order += peers & ~before
        below = (self.trees.depths == depth[:, None] + 1) & live[:, None]
        self.parent_order += below & (self.parent_order >= order[:, None])
        return order

    def _link(self, node: int, parent: Tensor, rank: Tensor, live: Tensor) -> None:
        """Make `node` the first child, or the next sibling of the child ranked before it."""
        trees = self.trees
        is_first = (self.nodes == parent[:, None]) & (rank == 0)[:, None] & live[:, None]
        trees.children.masked_fill_(is_first, node)
        is_before = (trees.parents == parent[:, None]) & (trees.ranks == rank[:, None] - 1)
        trees.siblings.masked_fill_(is_before & live[:, None] & (rank > 0)[:, None], node)


def ancestor_mask(trees: TreeBatch) -> Tensor:
    """`[R, N, N]` bool, `[r, i, j]` if node j is i or its ancestor; unused nodes see themselves."""
    requests, width = trees.parents.shape
    mask = torch.eye(width, dtype=torch.bool, device=trees.parents.device)
    mask = mask.repeat(requests, 1, 1)
    rows = torch.arange(requests, device=mask.device)
    for node in range(1, width):
        parent = trees.parents[:, node].long()
        inherited = mask[rows, parent.clamp(min=0)] & (parent >= 0)[:, None]
        mask[:, node] |= inherited
    return mask


def write_full_mask(mask: Tensor, prefix_lens: Tensor, out: Tensor) -> None:
    """Write tree masks into SGLang's `FULL_MASK` layout; other cells of `out` keep their value.

    Args:
        mask: `[R, N, N]` bool.
        prefix_lens: `[R]`, tokens before each tree.
        out: flat, changed; request after request N rows of (prefix + N) cells.
    """
    width = mask.shape[1]
    node = torch.arange(width, device=mask.device)
    row_cells = prefix_lens.long() + width  # [R]
    begins = (row_cells * width).cumsum(0) - row_cells * width
    cells = begins[:, None] + node * row_cells[:, None] + prefix_lens[:, None]  # [R, N]
    out[cells[:, :, None] + node] = mask.to(out.dtype)


def count_nodes(trees: TreeBatch, levels: int) -> Tensor:
    """Return `[R, L + 1]` int32: nodes at depth 1 to L, then the deepest depth.

    The deepest depth is also the number of nodes on the spine, rank 0 all the way down: of all
    prefixes of a depth the spine's comes first, so each depth with nodes has it.
    """
    level = torch.arange(1, levels + 1, device=trees.depths.device)
    nodes = (trees.depths[:, None, :] == level[:, None]).sum(-1, dtype=torch.int32)
    return torch.cat([nodes, trees.depths.amax(1, keepdim=True)], dim=1)
