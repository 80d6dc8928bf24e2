"""`candidates.top_candidates` in Triton: one pass over the logits, no float32 copy of them.

First each program reduces a piece of a row to its K best, its maximum and its sum of exponentials;
then a program a row merges the pieces.
"""

# Triton is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-untyped-decorators
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIECE = 4096
"""Logits a program reads: 32 a thread at 4 warps, which stay in registers."""


@triton.jit
def _best_of(
    value: tl.tensor,
    number: tl.tensor,
    slot: tl.tensor,
    TOPK: tl.constexpr,
    SLOTS: tl.constexpr,
    LAST: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """The TOPK largest of `value` in `SLOTS` lanes, equals by `number`, and their numbers."""
    top = tl.full([SLOTS], float("-inf"), tl.float32)
    top_number = tl.full([SLOTS], LAST, tl.int32)
    free = number < LAST
    for place in range(TOPK):
        best = tl.max(tl.where(free, value, float("-inf")), axis=0)
        first = tl.min(tl.where(free & (value == best), number, LAST), axis=0)
        top = tl.where(slot == place, best, top)
        top_number = tl.where(slot == place, first, top_number)
        free = free & (number != first)
    return top, top_number


@triton.jit
def _reduce_pieces(
    logits: tl.tensor,  # [M, V]
    values: tl.tensor,  # out [M, P, SLOTS]
    numbers: tl.tensor,  # out [M, P, SLOTS]
    norms: tl.tensor,  # out [M, P, 2]: maximum, sum of exponentials below it
    stride: int,
    VOCABULARY: int,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    TOPK: tl.constexpr,
    SLOTS: tl.constexpr,
    LAST: tl.constexpr,
) -> None:
    row, piece = tl.program_id(0), tl.program_id(1)
    number = piece * PIECE + tl.arange(0, PIECE)
    inside = number < VOCABULARY
    value = tl.load(logits + row.to(tl.int64) * stride + number, mask=inside, other=float("-inf"))
    value = value.to(tl.float32)
    highest = tl.max(value, axis=0)
    shift = tl.where(highest > float("-inf"), highest, 0.0)
    total = tl.sum(tl.exp(value - shift), axis=0)
    slot = tl.arange(0, SLOTS)
    top, top_number = _best_of(
        value, tl.where(inside, number, LAST), slot, TOPK=TOPK, SLOTS=SLOTS, LAST=LAST
    )
    at = row * PIECES + piece
    tl.store(values + at * SLOTS + slot, top)
    tl.store(numbers + at * SLOTS + slot, top_number)
    tl.store(norms + at * 2, shift)
    tl.store(norms + at * 2 + 1, total)


@triton.jit
def _merge_pieces(
    values: tl.tensor,  # [M, P, SLOTS]
    numbers: tl.tensor,  # [M, P, SLOTS]
    norms: tl.tensor,  # [M, P, 2]
    log_probs: tl.tensor,  # out [M, K]
    ids: tl.tensor,  # out [M, K]
    PIECES: tl.constexpr,
    PIECE_LANES: tl.constexpr,
    ENTRY_LANES: tl.constexpr,
    TOPK: tl.constexpr,
    SLOTS: tl.constexpr,
    LAST: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    piece = tl.arange(0, PIECE_LANES)
    is_piece = piece < PIECES
    shift = tl.load(norms + (row * PIECES + piece) * 2, mask=is_piece, other=float("-inf"))
    total = tl.load(norms + (row * PIECES + piece) * 2 + 1, mask=is_piece, other=0.0)
    highest = tl.max(shift, axis=0)
    norm = highest + tl.log(tl.sum(total * tl.exp(shift - highest), axis=0))

    entry = tl.arange(0, ENTRY_LANES)
    is_entry = entry < PIECES * SLOTS
    at = row * PIECES * SLOTS + entry
    value = tl.load(values + at, mask=is_entry, other=float("-inf"))
    number = tl.load(numbers + at, mask=is_entry, other=LAST)
    slot = tl.arange(0, SLOTS)
    top, top_number = _best_of(value, number, slot, TOPK=TOPK, SLOTS=SLOTS, LAST=LAST)
    # Subtracting the norm can make equals of different logits, which then count by id.
    top = tl.where(slot < TOPK, top - norm, float("-inf"))
    top, top_number = _best_of(top, top_number, slot, TOPK=TOPK, SLOTS=SLOTS, LAST=LAST)
    tl.store(log_probs + row * TOPK + slot, top, mask=slot < TOPK)
    tl.store(ids + row * TOPK + slot, top_number.to(tl.int64), mask=slot < TOPK)


def top_candidates_on_gpu(logits: Tensor, log_probs: Tensor, ids: Tensor) -> None:
    """Write the K most probable tokens of each row and their log-probabilities.

    Args:
        logits: `[M, V]`, floating point, contiguous along V.
        log_probs: `[M, K]` float32, changed.
        ids: `[M, K]` int64, changed.
    """
    rows, vocabulary = logits.shape
    topk = log_probs.shape[1]
    pieces, slots = triton.cdiv(vocabulary, _PIECE), triton.next_power_of_2(topk)
    values = torch.empty(rows, pieces, slots, dtype=torch.float32, device=logits.device)
    numbers = torch.empty(rows, pieces, slots, dtype=torch.int32, device=logits.device)
    norms = torch.empty(rows, pieces, 2, dtype=torch.float32, device=logits.device)
    last = torch.iinfo(torch.int32).max
    _reduce_pieces[(rows, pieces)](
        logits,
        values,
        numbers,
        norms,
        logits.stride(0),
        vocabulary,
        PIECES=pieces,
        PIECE=_PIECE,
        TOPK=topk,
        SLOTS=slots,
        LAST=last,
        num_warps=4,
    )
    _merge_pieces[(rows,)](
        values,
        numbers,
        norms,
        log_probs,
        ids,
        PIECES=pieces,
        PIECE_LANES=triton.next_power_of_2(pieces),
        ENTRY_LANES=triton.next_power_of_2(pieces * slots),
        TOPK=topk,
        SLOTS=slots,
        LAST=last,
        num_warps=4,
    )
