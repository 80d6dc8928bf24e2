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

from ddtree_sglang.tree import TreeBatch, check_candidates

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
    bonus: tl.tensor,  # [R]
    prefix_lens: tl.tensor,  # [R]
    tokens: tl.tensor,  # out [R, N], as are the next six
    parents: tl.tensor,
    depths: tl.tensor,
    ranks: tl.tensor,
    scores: tl.tensor,
    children: tl.tensor,
    siblings: tl.tensor,
    positions: tl.tensor,  # out [R, N]
    counts: tl.tensor,  # out [R, L + 1], rows COUNT_STRIDE apart: nodes a depth, deepest depth
    mask: tl.tensor,  # out, flat: N rows of (prefix + N) cells a request
    LEVELS: tl.constexpr,
    TOPK: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,  # power of two ≥ WIDTH
    RANKS: tl.constexpr,  # power of two ≥ TOPK
    LEVEL_LANES: tl.constexpr,  # power of two ≥ LEVELS
    FULL_MASK: tl.constexpr,
    COUNT_STRIDE: tl.constexpr,
    REQUEST_LANES: tl.constexpr,  # power of two ≥ R
) -> None:
    request = tl.program_id(0)
    node = tl.arange(0, LANES)
    level = tl.arange(0, LEVEL_LANES)
    steps = log_probs + request * LEVELS * TOPK
    ids += request * LEVELS * TOPK
    root_token = tl.load(bonus + request).to(tl.int64)

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
    prefix = tl.load(prefix_lens + request).to(tl.int64)
    tl.store(tokens + row + node, token, mask=real)
    tl.store(parents + row + node, parent, mask=real)
    tl.store(depths + row + node, depth, mask=real)
    tl.store(ranks + row + node, rank, mask=real)
    tl.store(scores + row + node, score, mask=real)
    tl.store(children + row + node, child.to(tl.int64), mask=real)
    tl.store(siblings + row + node, sibling.to(tl.int64), mask=real)
    tl.store(positions + row + node, prefix + depth, mask=real)
    tl.store(counts + request * COUNT_STRIDE + level, level_nodes, mask=level < LEVELS)
    tl.store(counts + request * COUNT_STRIDE + LEVELS, tl.max(depth, axis=0))

    cells = mask + row.to(tl.int64) * WIDTH
    row_cells = tl.zeros([], tl.int64) + WIDTH
    if FULL_MASK:
        other = tl.arange(0, REQUEST_LANES)
        lens = tl.load(prefix_lens + other, mask=other < request, other=0)
        cells += tl.sum(lens.to(tl.int64), axis=0) * WIDTH + prefix
        row_cells += prefix
    _write_mask(cells, row_cells, parents + row, node, LEVELS=LEVELS, WIDTH=WIDTH, LANES=LANES)


@triton.jit(
    do_not_specialize_on_alignment=[
        "tokens",
        "parents",
        "ranks",
        "next_tokens",
        "accept_lens",
        "path",
        "counts",
    ]
)
def _follow(
    tokens: tl.tensor,  # [R, N]
    parents: tl.tensor,
    ranks: tl.tensor,
    next_tokens: tl.tensor,  # [R, N], the target's tokens along the accepted path
    accept_lens: tl.tensor,  # [R], path's length, root included
    path: tl.tensor,  # out [R, D]
    counts: tl.tensor,  # out [R, K], rows COUNT_STRIDE apart
    DEPTH: tl.constexpr,  # D
    TOPK: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    RANK_LANES: tl.constexpr,
    COUNT_STRIDE: tl.constexpr,
) -> None:
    request = tl.program_id(0)
    node = tl.arange(0, LANES)
    kind = tl.arange(0, RANK_LANES)
    row = request * WIDTH
    token = tl.load(tokens + row + node, mask=node < WIDTH, other=-1)
    parent = tl.load(parents + row + node, mask=node < WIDTH, other=-1)
    rank = tl.load(ranks + row + node, mask=node < WIDTH, other=-1)
    length = tl.load(accept_lens + request)
    at = tl.zeros([], tl.int32)
    count = tl.zeros([RANK_LANES], tl.int32)
    for step in range(DEPTH):
        wanted = tl.load(next_tokens + row + step).to(tl.int64)
        is_next = (parent == at) & (token == wanted) & (step + 1 < length)
        at = tl.max(tl.where(is_next, node, -2), axis=0)  # −2 is nobody's parent
        count += (kind == tl.max(tl.where(is_next, rank, -1), axis=0)).to(tl.int32)
        tl.store(path + request * DEPTH + step, tl.maximum(at, -1))
    tl.store(counts + request * COUNT_STRIDE + kind, count, mask=kind < TOPK)


def grow_trees_on_gpu(
    log_probs: Tensor,
    tokens: Tensor,
    bonus: Tensor,
    prefix_lens: Tensor,
    width: int,
    mask: Tensor,
    counts: Tensor,
    *,
    full_mask: bool,
) -> tuple[TreeBatch, Tensor]:
    """Return the trees and their nodes' positions, `[R, N]` int64.

    Args:
        log_probs: `[R, L, K]` float32, contiguous; see `tree.grow_trees`.
        tokens: `[R, L, K]` int64, contiguous.
        bonus: `[R]`.
        prefix_lens: `[R]`, tokens before each tree.
        width: N.
        mask: flat uint8 or bool, changed: the N × N cells of each request and no others.
        counts: `[R, L + 1]` int32, changed to `tree.count_nodes`; its rows may lie apart.
        full_mask: `FULL_MASK` layout (`tree.write_full_mask`) rather than N × N a request.
    """
    check_candidates(log_probs, tokens, bonus)
    requests, levels, topk = log_probs.shape
    trees = TreeBatch.empty(requests, width, log_probs.device)
    positions = torch.empty_like(trees.tokens)
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
        positions,
        counts,
        mask.view(torch.uint8),
        LEVELS=levels,
        TOPK=topk,
        WIDTH=width,
        LANES=lanes,
        RANKS=triton.next_power_of_2(topk),
        LEVEL_LANES=triton.next_power_of_2(levels),
        FULL_MASK=full_mask,
        COUNT_STRIDE=counts.stride(0),
        REQUEST_LANES=max(triton.next_power_of_2(requests), _LEAST_REQUEST_LANES),
        num_warps=1 if lanes <= _ONE_WARP_NODES else 2,
    )
    return trees, positions


def follow_on_gpu(
    trees: TreeBatch, next_tokens: Tensor, accept_lens: Tensor, depth: int, counts: Tensor
) -> Tensor:
    """`tree.follow` and `tree.count_ranks` in one launch.

    `counts`: `[R, K]` int32, changed to accepted nodes a rank; its rows may lie apart.
    """
    requests, width = trees.tokens.shape
    path = torch.empty(requests, depth, dtype=torch.int32, device=counts.device)
    _follow[(requests,)](
        trees.tokens,
        trees.parents,
        trees.ranks,
        next_tokens,
        accept_lens,
        path,
        counts,
        DEPTH=depth,
        TOPK=counts.shape[1],
        WIDTH=width,
        LANES=triton.next_power_of_2(width),
        RANK_LANES=triton.next_power_of_2(counts.shape[1]),
        COUNT_STRIDE=counts.stride(0),
        num_warps=1,
    )
    return path


def compile_kernels(log_probs: Tensor, tokens: Tensor, width: int, depth: int) -> None:
    """Compile what batches of up to R requests need, so that no request waits for it.

    Args:
        log_probs: `[R, L, K]` float32, any values.
        tokens: `[R, L, K]` int64, any values.
        width: N.
        depth: D, the longest path below the root.
    """
    most, levels, topk = log_probs.shape
    sizes = {min(most, 1 << power) for power in range(most.bit_length() + 1)}
    for requests in sorted(sizes):
        some = log_probs[:requests], tokens[:requests]
        lengths = torch.ones(requests, dtype=torch.int64, device=tokens.device)
        mask = torch.empty(requests * width * (width + 1), dtype=torch.uint8, device=tokens.device)
        shape = (requests, levels + 1 + topk)
        counts = torch.empty(shape, dtype=torch.int32, device=tokens.device)
        trees, _ = grow_trees_on_gpu(*some, lengths, lengths, width, mask, counts, full_mask=True)
        follow_on_gpu(trees, trees.ranks, lengths.int(), depth, counts[:, levels + 1 :])
