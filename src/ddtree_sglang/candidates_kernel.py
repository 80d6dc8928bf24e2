"""`candidates` in Triton: one pass over the logits, no float32 copy of them.

First each program reduces a piece of a row to its K best, its maximum and its sum of exponentials;
then a program a row merges the pieces, either into candidates or, where ranks hold parts of the
vocabulary, into the rank's part, and once more when the parts have been gathered.
"""

# Triton is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-untyped-decorators
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ddtree_sglang.candidates import words_of

_PIECE = 4096
"""Logits a program reads: 32 a thread at 4 warps, which stay in registers."""
_LAST = torch.iinfo(torch.int32).max
"""Above all token ids."""


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
def _store_part(
    words: tl.tensor,
    top: tl.tensor,
    top_number: tl.tensor,
    highest: tl.tensor,
    total: tl.tensor,
    slot: tl.tensor,
    TOPK: tl.constexpr,
) -> None:
    """Write one reduced row; see `candidates` for the words."""
    tl.store(words + slot, top, mask=slot < TOPK)
    bits = top_number.to(tl.float32, bitcast=True)
    tl.store(words + TOPK + slot, bits, mask=slot < TOPK)
    tl.store(words + 2 * TOPK, highest)
    tl.store(words + 2 * TOPK + 1, total)


@triton.jit
def _reduce_pieces(
    logits: tl.tensor,  # [M, V]
    pieces: tl.tensor,  # out [P, M, WORDS]
    stride: int,
    VOCABULARY: int,
    FIRST_TOKEN: int,
    PIECE: tl.constexpr,
    TOPK: tl.constexpr,
    SLOTS: tl.constexpr,
    WORDS: tl.constexpr,
    LAST: tl.constexpr,
) -> None:
    row, piece = tl.program_id(0), tl.program_id(1)
    place = piece * PIECE + tl.arange(0, PIECE)
    inside = place < VOCABULARY
    value = tl.load(logits + row.to(tl.int64) * stride + place, mask=inside, other=float("-inf"))
    value = value.to(tl.float32)
    highest = tl.max(value, axis=0)
    total = tl.sum(tl.exp(value - tl.where(highest > float("-inf"), highest, 0.0)), axis=0)
    slot = tl.arange(0, SLOTS)
    number = tl.where(inside, FIRST_TOKEN + place, LAST)
    top, top_number = _best_of(value, number, slot, TOPK=TOPK, SLOTS=SLOTS, LAST=LAST)
    words = pieces + (piece * tl.num_programs(0) + row) * WORDS
    _store_part(words, top, top_number, highest, total, slot, TOPK=TOPK)


@triton.jit
def _merge_parts(
    parts: tl.tensor,  # [P, M, WORDS]
    part: tl.tensor,  # out [M, WORDS], unless FINAL
    log_probs: tl.tensor,  # out [M, K], if FINAL
    ids: tl.tensor,  # out [M, K], if FINAL
    PARTS: tl.constexpr,
    PART_LANES: tl.constexpr,  # power of two ≥ PARTS
    TOPK: tl.constexpr,
    SLOTS: tl.constexpr,  # power of two ≥ TOPK
    WORDS: tl.constexpr,
    LAST: tl.constexpr,
    FINAL: tl.constexpr,
) -> None:
    row, rows = tl.program_id(0), tl.num_programs(0)
    number_of = tl.arange(0, PART_LANES)
    words = parts + (number_of * rows + row) * WORDS
    highest = tl.load(words + 2 * TOPK, mask=number_of < PARTS, other=float("-inf"))
    total = tl.load(words + 2 * TOPK + 1, mask=number_of < PARTS, other=0.0)
    largest = tl.max(highest, axis=0)
    base = tl.where(largest > float("-inf"), largest, 0.0)
    total = tl.sum(total * tl.exp(highest - base), axis=0)

    lane = tl.arange(0, PART_LANES * SLOTS)
    real = (lane // SLOTS < PARTS) & (lane % SLOTS < TOPK)
    entry = parts + (lane // SLOTS * rows + row) * WORDS + lane % SLOTS
    value = tl.load(entry, mask=real, other=float("-inf"))
    number = tl.load(entry + TOPK, mask=real, other=0.0).to(tl.int32, bitcast=True)
    number = tl.where(real, number, LAST)
    slot = tl.arange(0, SLOTS)
    top, top_number = _best_of(value, number, slot, TOPK=TOPK, SLOTS=SLOTS, LAST=LAST)
    if FINAL:
        # Subtracting the norm can make equals of different logits, which then count by id.
        top = tl.where(slot < TOPK, top - (largest + tl.log(total)), float("-inf"))
        top, top_number = _best_of(top, top_number, slot, TOPK=TOPK, SLOTS=SLOTS, LAST=LAST)
        tl.store(log_probs + row * TOPK + slot, top, mask=slot < TOPK)
        tl.store(ids + row * TOPK + slot, top_number.to(tl.int64), mask=slot < TOPK)
    else:
        _store_part(part + row * WORDS, top, top_number, largest, total, slot, TOPK=TOPK)


def top_candidates_on_gpu(logits: Tensor, log_probs: Tensor, ids: Tensor) -> None:
    """Write the K most probable tokens of each row and their log-probabilities.

    Args:
        logits: `[M, V]`, floating point, contiguous along V.
        log_probs: `[M, K]` float32, changed.
        ids: `[M, K]` int64, changed.
    """
    merge_parts_on_gpu(_pieces(logits, log_probs.shape[1], 0), log_probs, ids)


def reduce_part_on_gpu(logits: Tensor, first_token: int, part: Tensor) -> None:
    """`candidates.reduce_part` into `part`, `[M, 2 K + 2]` float32, changed."""
    topk = part.shape[1] // 2 - 1
    _merge(_pieces(logits, topk, first_token), part, part, part, is_final=False)


def merge_parts_on_gpu(parts: Tensor, log_probs: Tensor, ids: Tensor) -> None:
    """`candidates.merge_parts` of `[P, M, 2 K + 2]` words into `[M, K]` each, changed."""
    _merge(parts, parts, log_probs, ids, is_final=True)


def _pieces(logits: Tensor, topk: int, first_token: int) -> Tensor:
    """`[P, M, 2 K + 2]` words of the pieces that a program each has reduced."""
    rows, vocabulary = logits.shape
    count, words = triton.cdiv(vocabulary, _PIECE), words_of(topk)
    pieces = torch.empty(count, rows, words, dtype=torch.float32, device=logits.device)
    _reduce_pieces[(rows, count)](
        logits,
        pieces,
        logits.stride(0),
        vocabulary,
        first_token,
        PIECE=_PIECE,
        TOPK=topk,
        SLOTS=triton.next_power_of_2(topk),
        WORDS=words,
        LAST=_LAST,
        num_warps=4,
    )
    return pieces


def _merge(parts: Tensor, part: Tensor, log_probs: Tensor, ids: Tensor, *, is_final: bool) -> None:
    count, rows, words = parts.shape
    topk = words // 2 - 1
    _merge_parts[(rows,)](
        parts,
        part,
        log_probs,
        ids,
        PARTS=count,
        PART_LANES=triton.next_power_of_2(count),
        TOPK=topk,
        SLOTS=triton.next_power_of_2(topk),
        WORDS=words,
        LAST=_LAST,
        FINAL=is_final,
        num_warps=4,
    )
