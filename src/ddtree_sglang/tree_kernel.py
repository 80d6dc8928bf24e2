"""`tree.grow_trees` as one Triton launch, with positions and the verify mask beside it.

One program a request. A program's state is a handful of vectors with one lane a node, so a round
is three reductions and needs no shared memory; one warp carries up to 128 nodes.
"""

# Triton is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-untyped-decorators
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ddtree_sglang.buffers import Step
from ddtree_sglang.tree import check_candidates

_ONE_WARP_NODES = 128
_LEAST_REQUEST_LANES = 64
"""Lower means more variants of the kernel, each compiled when a batch first grows to its size."""


@triton.jit
def _first_in_order(
    is_best: tl.tensor,
    node: tl.tensor,
    depth: tl.tensor,
    order: tl.tensor,
    taken: tl.tensor,
    LANES: tl.constexpr,
    RANKS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Of equal open children the first: its parent, the parent's order, its rank and depth."""
    # Number and rank ride along below what decides.
    key = ((depth * LANES + order) * LANES + node) * RANKS + tl.minimum(taken, RANKS - 1)
    first = tl.min(tl.where(is_best, key, 0x7FFFFFFF), axis=0)
    parent = (first // RANKS) % LANES
    parent_order = (first // (RANKS * LANES)) % LANES
    return parent, parent_order, first % RANKS, first // (RANKS * LANES * LANES) + 1


@triton.jit
def _make_room(
    depth: tl.tensor,
    order: tl.tensor,
    parent_order: tl.tensor,
    new_depth: tl.tensor,
    of_order: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The new node's order, and all orders with those behind it moved up."""
    peers = depth == new_depth
    new_order = tl.sum((peers & (parent_order <= of_order)).to(tl.int32), axis=0)
    order += (peers & (parent_order > of_order)).to(tl.int32)
    below = (depth == new_depth + 1) & (parent_order >= new_order)
    return new_order, order, parent_order + below.to(tl.int32)


@triton.jit
def _write_mask(
    cells: tl.tensor,  # the first of the tree's own cells
    row_cells: tl.tensor,
    parents: tl.tensor,  # [N], stored by this program
    node: tl.tensor,
    LEVELS: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
) -> None:
    """Clear the N × N cells, then set each node's path by walking up from all nodes at once."""
    real = node < WIDTH
    for i in range(WIDTH):
        tl.store(cells + i * row_cells + node, tl.zeros([LANES], tl.uint8), mask=real)
    tl.debug_barrier()  # the walk overwrites cells and reads parents that other threads stored
    at = node
    for _ in range(LEVELS + 1):
        on_path = real & (at >= 0)
        tl.store(cells + node * row_cells + at, tl.full([LANES], 1, tl.uint8), mask=on_path)
        at = tl.load(parents + at, mask=on_path, other=-1)


# A tensor's address depends on the batch; a variant for each alignment would be compiled while
# requests wait.
@triton.jit(
    do_not_specialize_on_alignment=[
        "log_probs",
        "ids",
        "bonus",
        "prefix_lens",
        "tokens",
        "parents",
        "depths",
        "ranks",
        "scores",
        "children",
        "siblings",
        "positions",
        "counts",
        "mask",
    ]
)
def _grow(
    log_probs: tl.tensor,  # [R, L, K]
    ids: tl.tensor,  # [R, L, K]
    bonus: tl.tensor,  # [R], BONUS_STRIDE apart
    prefix_lens: tl.tensor,  # [R], PREFIX_STRIDE apart
    tokens: tl.tensor,  # out [R, N], as are the next six
    parents: tl.tensor,
    depths: tl.tensor,
    ranks: tl.tensor,
    scores: tl.tensor,
    children: tl.tensor,
    siblings: tl.tensor,
    positions: tl.tensor,  # out [R, N]
    counts: tl.tensor,  # out [R, L + 1]: nodes a depth, deepest depth
    mask: tl.tensor,  # out, flat: N rows of (prefix + N) cells a request
    LEVELS: tl.constexpr,
    TOPK: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,  # power of two ≥ WIDTH
    RANKS: tl.constexpr,  # power of two ≥ TOPK
    LEVEL_LANES: tl.constexpr,  # power of two ≥ LEVELS
    FULL_MASK: tl.constexpr,
    BONUS_STRIDE: tl.constexpr,
    PREFIX_STRIDE: tl.constexpr,
    REQUEST_LANES: tl.constexpr,  # power of two ≥ R
) -> None:
    request = tl.program_id(0)
    node = tl.arange(0, LANES)
    level = tl.arange(0, LEVEL_LANES)
    steps = log_probs + request * LEVELS * TOPK
    ids += request * LEVELS * TOPK
    root_token = tl.load(bonus + request * BONUS_STRIDE).to(tl.int64)

    token = tl.zeros([LANES], tl.int64) + root_token
    score = tl.where(node == 0, 0.0, float("-inf"))
    depth = tl.zeros([LANES], tl.int32)
    order = tl.zeros([LANES], tl.int32)
    parent_order = tl.zeros([LANES], tl.int32)
    taken = tl.zeros([LANES], tl.int32)
    parent = tl.full([LANES], -1, tl.int32)
    rank = tl.full([LANES], -1, tl.int32)
    child = tl.full([LANES], -1, tl.int32)
    sibling = tl.full([LANES], -1, tl.int32)
    level_nodes = tl.zeros([LEVEL_LANES], tl.int32)

    for new in range(1, WIDTH):
        is_open = (depth < LEVELS) & (taken < TOPK) & (score > float("-inf"))
        step = tl.load(steps + depth * TOPK + taken, mask=is_open, other=float("-inf"))
        value = score + step
        best = tl.max(value, axis=0)
        if best > float("-inf"):
            of, of_order, new_rank, new_depth = _first_in_order(
                value == best, node, depth, order, taken, LANES=LANES, RANKS=RANKS
            )
            new_order, order, parent_order = _make_room(
                depth, order, parent_order, new_depth, of_order
            )
            # Link, then fill the new lane.
            child = tl.where((node == of) & (new_rank == 0), new, child)
            is_elder = (parent == of) & (rank == new_rank - 1) & (new_rank > 0)
            sibling = tl.where(is_elder, new, sibling)
            taken += (node == of).to(tl.int32)
            here = node == new
            new_token = tl.load(ids + (new_depth - 1) * TOPK + new_rank)
            token = tl.where(here, new_token, token)
            score = tl.where(here, best, score)
            depth = tl.where(here, new_depth, depth)
            order = tl.where(here, new_order, order)
            parent_order = tl.where(here, of_order, parent_order)
            parent = tl.where(here, of, parent)
            rank = tl.where(here, new_rank, rank)
            level_nodes += (level == new_depth - 1).to(tl.int32)

    row = request * WIDTH
    real = node < WIDTH
    prefix = tl.load(prefix_lens + request * PREFIX_STRIDE).to(tl.int64)
    tl.store(tokens + row + node, token, mask=real)
    tl.store(parents + row + node, parent, mask=real)
    tl.store(depths + row + node, depth, mask=real)
    tl.store(ranks + row + node, rank, mask=real)
    tl.store(scores + row + node, score, mask=real)
    tl.store(children + row + node, child.to(tl.int64), mask=real)
    tl.store(siblings + row + node, sibling.to(tl.int64), mask=real)
    tl.store(positions + row + node, prefix + depth, mask=real)
    tl.store(counts + request * (LEVELS + 1) + level, level_nodes, mask=level < LEVELS)
    tl.store(counts + request * (LEVELS + 1) + LEVELS, tl.max(depth, axis=0))

    cells = mask + row.to(tl.int64) * WIDTH
    row_cells = tl.zeros([], tl.int64) + WIDTH
    if FULL_MASK:
        other = tl.arange(0, REQUEST_LANES)
        lens = tl.load(prefix_lens + other * PREFIX_STRIDE, mask=other < request, other=0)
        cells += tl.sum(lens.to(tl.int64), axis=0) * WIDTH + prefix
        row_cells += prefix
    _write_mask(cells, row_cells, parents + row, node, LEVELS=LEVELS, WIDTH=WIDTH, LANES=LANES)


def grow_trees_on_gpu(
    log_probs: Tensor,
    tokens: Tensor,
    bonus: Tensor,
    prefix_lens: Tensor,
    mask: Tensor,
    out: Step,
    *,
    full_mask: bool,
) -> None:
    """Fill `out` with the trees, their nodes' positions, and their counts.

    Args:
        log_probs: `[R, L, K]` float32, contiguous; see `tree.grow_trees`.
        tokens: `[R, L, K]` int64, contiguous.
        bonus: `[R]`; its elements may lie apart, as those of the next may.
        prefix_lens: `[R]`, tokens before each tree.
        mask: flat uint8 or bool, changed: the N × N cells of each request and no others.
        out: changed, but for its paths.
        full_mask: `FULL_MASK` layout (`tree.write_full_mask`) rather than N × N a request.
    """
    check_candidates(log_probs, tokens, bonus)
    trees = out.trees
    requests, levels, topk = log_probs.shape
    width = trees.tokens.shape[1]
    lanes = triton.next_power_of_2(width)
    _grow[(requests,)](
        log_probs,
        tokens,
        bonus,
        prefix_lens,
        trees.tokens,
        trees.parents,
        trees.depths,
        trees.ranks,
        trees.scores,
        trees.children,
        trees.siblings,
        out.positions,
        out.counts,
        mask.view(torch.uint8),
        LEVELS=levels,
        TOPK=topk,
        WIDTH=width,
        LANES=lanes,
        RANKS=triton.next_power_of_2(topk),
        LEVEL_LANES=triton.next_power_of_2(levels),
        FULL_MASK=full_mask,
        BONUS_STRIDE=bonus.stride(0),
        PREFIX_STRIDE=prefix_lens.stride(0),
        REQUEST_LANES=max(triton.next_power_of_2(requests), _LEAST_REQUEST_LANES),
        num_warps=1 if lanes <= _ONE_WARP_NODES else 2,
    )
