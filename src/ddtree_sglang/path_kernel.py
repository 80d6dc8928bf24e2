"""`path.accept_paths` as one Triton launch: one warp a request, one lane a node."""

# Triton is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-untyped-decorators
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ddtree_sglang.buffers import Step


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
        "node_counts",
        "path_nodes",
        "path_rows",
        "path_lens",
        "sources",
        "targets",
        "report_tokens",
        "report_bonus",
        "report_new_lens",
        "report_lens",
        "report_counts",
    ]
)
def _accept(
    tokens: tl.tensor,  # [R, N], as are the next three
    parents: tl.tensor,
    ranks: tl.tensor,
    predicted: tl.tensor,
    prefix_lens: tl.tensor,  # [R]
    slots: tl.tensor,  # [R, N]
    limits: tl.tensor,  # [R]
    node_counts: tl.tensor,  # [R, L + 1]
    path_nodes: tl.tensor,  # out [R, D + 1]
    path_rows: tl.tensor,  # out [R, D + 1]
    path_lens: tl.tensor,  # out [R]
    sources: tl.tensor,  # out [R, D]
    targets: tl.tensor,  # out [R, D]
    report_tokens: tl.tensor,  # out [R, N]
    report_bonus: tl.tensor,  # out [R], as are the next two
    report_new_lens: tl.tensor,
    report_lens: tl.tensor,
    report_counts: tl.tensor,  # out [R, L + 1 + K]
    DEPTH: tl.constexpr,  # D
    LEVELS: tl.constexpr,  # L
    TOPK: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,  # power of two ≥ WIDTH
    RANK_LANES: tl.constexpr,  # power of two ≥ TOPK
    LEVEL_LANES: tl.constexpr,  # power of two ≥ LEVELS + 1
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
    limit = tl.minimum(tl.load(limits + request), DEPTH + 1)

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
    tl.store(path_lens + request, length)
    # Behind the end: slot 0, SGLang's dummy.
    source = tl.load(slots + row + safe, mask=on_path, other=0)
    target = tl.load(slots + row + lane, mask=on_path, other=0)
    is_moved = is_step & (lane > 0)
    tl.store(sources + request * DEPTH + lane - 1, source.to(tl.int64), mask=is_moved)
    tl.store(targets + request * DEPTH + lane - 1, target.to(tl.int64), mask=is_moved)

    new_len = tl.load(prefix_lens + request).to(tl.int64) + length
    tl.store(report_tokens + row + lane, new_token, mask=is_node)
    tl.store(report_bonus + request, bonus)
    tl.store(report_new_lens + request, new_len)
    tl.store(report_lens + request, length.to(tl.int64))
    level = tl.arange(0, LEVEL_LANES)
    counted = tl.load(node_counts + request * (LEVELS + 1) + level, mask=level <= LEVELS, other=0)
    numbers = report_counts + request * (LEVELS + 1 + TOPK)
    tl.store(numbers + level, counted.to(tl.int64), mask=level <= LEVELS)
    tl.store(numbers + LEVELS + 1 + kind, count.to(tl.int64), mask=kind < TOPK)


def accept_paths_on_gpu(
    step: Step, predicted: Tensor, prefix_lens: Tensor, slots: Tensor, limits: Tensor
) -> None:
    """`path.accept_paths`; all tensors contiguous, and none is waited for."""
    trees, out, report = step.trees, step.path, step.path.report
    requests, width = trees.tokens.shape
    levels = step.counts.shape[1] - 1
    topk = report.counts.shape[1] - levels - 1
    _accept[(requests,)](
        trees.tokens,
        trees.parents,
        trees.ranks,
        predicted,
        prefix_lens,
        slots,
        limits,
        step.counts,
        out.nodes,
        out.rows,
        out.lens,
        out.sources,
        out.targets,
        report.tokens,
        report.bonus,
        report.new_lens,
        report.lens,
        report.counts,
        DEPTH=out.nodes.shape[1] - 1,
        LEVELS=levels,
        TOPK=topk,
        WIDTH=width,
        LANES=triton.next_power_of_2(width),
        RANK_LANES=triton.next_power_of_2(topk),
        LEVEL_LANES=triton.next_power_of_2(levels + 1),
        num_warps=1,
    )
