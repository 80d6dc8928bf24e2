"""`path.accept_paths` as one Triton launch: one warp a request, one lane a node."""

# Triton is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-untyped-decorators
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ddtree_sglang.path import PathBatch
from ddtree_sglang.tree import TreeBatch


# A tensor's address depends on the batch; a variant for each alignment would be compiled while
# requests wait.
@triton.jit(
    do_not_specialize_on_alignment=[
        "tokens",
        "parents",
        "ranks",
        "predicted",
        "prefix_lens",
        "slots",
        "limits",
        "path_nodes",
        "path_rows",
        "path_lens",
        "path_tokens",
        "path_bonus",
        "new_lens",
        "sources",
        "targets",
        "counts",
    ]
)
def _accept(
    tokens: tl.tensor,  # [R, N], as are the next three
    parents: tl.tensor,
    ranks: tl.tensor,
    predicted: tl.tensor,
    prefix_lens: tl.tensor,  # [R]
    slots: tl.tensor,  # [R, N]
    limits: tl.tensor,  # [R], read if LIMITED
    path_nodes: tl.tensor,  # out [R, D + 1]
    path_rows: tl.tensor,  # out [R, D + 1]
    path_lens: tl.tensor,  # out [R]
    path_tokens: tl.tensor,  # out [R, N]
    path_bonus: tl.tensor,  # out [R]
    new_lens: tl.tensor,  # out [R]
    sources: tl.tensor,  # out [R, D]
    targets: tl.tensor,  # out [R, D]
    counts: tl.tensor,  # out [R, K], rows COUNT_STRIDE apart
    DEPTH: tl.constexpr,  # D
    TOPK: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,  # power of two ≥ WIDTH
    RANK_LANES: tl.constexpr,  # power of two ≥ TOPK
    COUNT_STRIDE: tl.constexpr,
    LIMITED: tl.constexpr,
) -> None:
    request = tl.program_id(0)
    lane = tl.arange(0, LANES)
    kind = tl.arange(0, RANK_LANES)
    row = request * WIDTH
    is_node = lane < WIDTH
    token = tl.load(tokens + row + lane, mask=is_node, other=-1)
    parent = tl.load(parents + row + lane, mask=is_node, other=-1)
    rank = tl.load(ranks + row + lane, mask=is_node, other=-1)
    answer = tl.load(predicted + row + lane, mask=is_node, other=0).to(tl.int64)
    limit = tl.zeros([], tl.int32) + (DEPTH + 1)
    if LIMITED:
        limit = tl.load(limits + request)

    at = tl.zeros([], tl.int32)
    length = tl.zeros([], tl.int32) + 1
    bonus = tl.sum(tl.where(lane == 0, answer, 0), axis=0)
    node = tl.full([LANES], -1, tl.int32)  # the path, one lane a step
    node = tl.where(lane == 0, 0, node)
    new_token = tl.where(lane == 0, bonus, tl.zeros([LANES], tl.int64))
    count = tl.zeros([RANK_LANES], tl.int32)
    while length < limit:
        is_next = (parent == at) & (token == bonus)
        at = tl.max(tl.where(is_next, lane, -1), axis=0)
        if at < 0:
            limit = tl.zeros([], tl.int32)  # the target's token has no node
        else:
            count += (kind == tl.max(tl.where(is_next, rank, -1), axis=0)).to(tl.int32)
            bonus = tl.sum(tl.where(lane == at, answer, 0), axis=0)
            node = tl.where(lane == length, at, node)
            new_token = tl.where(lane == length, bonus, new_token)
            length += 1

    on_path = node >= 0
    safe = tl.maximum(node, 0)
    is_step = lane <= DEPTH
    tl.store(path_nodes + request * (DEPTH + 1) + lane, node, mask=is_step)
    tl.store(path_rows + request * (DEPTH + 1) + lane, (row + safe).to(tl.int64), mask=is_step)
    tl.store(path_tokens + row + lane, new_token, mask=is_node)
    tl.store(path_lens + request, length)
    tl.store(path_bonus + request, bonus)
    tl.store(new_lens + request, tl.load(prefix_lens + request).to(tl.int64) + length)
    # Behind the end: slot 0, SGLang's dummy.
    source = tl.load(slots + row + safe, mask=on_path, other=0)
    target = tl.load(slots + row + lane, mask=on_path, other=0)
    is_moved = is_step & (lane > 0)
    tl.store(sources + request * DEPTH + lane - 1, source.to(tl.int64), mask=is_moved)
    tl.store(targets + request * DEPTH + lane - 1, target.to(tl.int64), mask=is_moved)
    tl.store(counts + request * COUNT_STRIDE + kind, count, mask=kind < TOPK)


def accept_paths_on_gpu(
    trees: TreeBatch,
    predicted: Tensor,
    prefix_lens: Tensor,
    slots: Tensor,
    limits: Tensor | None,
    out: PathBatch,
) -> None:
    """`path.accept_paths`; all tensors contiguous but `out.ranks`, whose rows may lie apart."""
    requests, width = trees.tokens.shape
    _accept[(requests,)](
        trees.tokens,
        trees.parents,
        trees.ranks,
        predicted,
        prefix_lens,
        slots,
        out.lens if limits is None else limits,
        out.nodes,
        out.rows,
        out.lens,
        out.tokens,
        out.bonus,
        out.new_lens,
        out.sources,
        out.targets,
        out.ranks,
        DEPTH=out.nodes.shape[1] - 1,
        TOPK=out.ranks.shape[1],
        WIDTH=width,
        LANES=triton.next_power_of_2(width),
        RANK_LANES=triton.next_power_of_2(out.ranks.shape[1]),
        COUNT_STRIDE=out.ranks.stride(0),
        LIMITED=limits is not None,
        num_warps=1,
    )
