"""The drafter's K most probable tokens at each depth, with their log-probabilities.

Ranked by logit, equal logits by token id, in float32: the order of `ddtree.tree.rank_candidates`
on the log-softmax, except where rounding makes log-probabilities of different logits equal at the
K-th place, where it may keep the other one of two equals.

A vocabulary may be cut into parts, by a kernel's programs or by tensor parallelism. Each part is
reduced by itself to 2 K + 2 words a row, and the parts are merged: the K best of all are among the
K best of each, and the norms add up. Words are float32: K logits, descending, equals by id; the
bits of their K ids, int32; the largest logit; the sum of exponentials of logits below it.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

_ID_BITS: Final = 32


def words_of(topk: int) -> int:
    """Words of a reduced part a row."""
    return 2 * topk + 2


def top_candidates(logits: Tensor, topk: int) -> tuple[Tensor, Tensor]:
    """Return log-probabilities `[M, K]` float32, descending, and their token ids `[M, K]` int64.

    Waits for the device, so it is for the CPU and for tests; `candidates_kernel` does not.

    Args:
        logits: `[M, V]`, floating point.
        topk: K ≤ V.
    """
    return merge_parts(reduce_part(logits, topk)[None])


def reduce_part(logits: Tensor, topk: int, first_token: int = 0) -> Tensor:
    """Return a part of the vocabulary reduced to `[M, 2 K + 2]` words.

    Args:
        logits: `[M, V']`, floating point, of V' tokens in a row.
        topk: K ≤ V'.
        first_token: id of the part's first token.
    """
    values = logits.float()
    top, ids = values.topk(topk)
    if (values >= top[:, -1:]).sum() > ids.numel():
        ids = _first_of_equals(values, topk)  # topk leaves open which equals it keeps
    top, ids = _ranked(values.gather(1, ids), ids)
    bits = (ids + first_token).int().view(torch.float32)
    norm = values.logsumexp(-1, keepdim=True)  # as the largest, with a sum of 1
    return torch.cat([top, bits, norm, torch.ones_like(norm)], dim=1)


def merge_parts(parts: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and token ids, `[M, K]` each, of P parts in the order of their ids.

    `parts`: `[P, M, 2 K + 2]` words.
    """
    topk = parts.shape[-1] // 2 - 1
    values = parts[..., :topk].transpose(0, 1).flatten(1)  # [M, P × K]
    ids = parts[..., topk : 2 * topk].contiguous().view(torch.int32).long()
    values, ids = _ranked(values, ids.transpose(0, 1).flatten(1))
    highest, total = parts[..., -2], parts[..., -1]  # [P, M]
    largest = highest.amax(0)
    norm = largest + (total * (highest - largest).exp()).sum(0).log()
    # Subtracting the norm can make equals of different logits, which then count by id.
    return _ranked(values[:, :topk] - norm[:, None], ids[:, :topk])


def _first_of_equals(values: Tensor, topk: int) -> Tensor:
    """`[M, K]` ids of the largest values, of equals those with the smallest ids."""
    lowest = (1 << _ID_BITS) - 1
    reversed_ids = lowest - torch.arange(values.shape[1], device=values.device)
    keys = (_sortable(values) << _ID_BITS) | reversed_ids
    return lowest - (keys.topk(topk).values & lowest)


def _ranked(values: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return both `[M, K]` sorted by value, descending, equals by id."""
    by_id = ids.argsort(1)
    values, ids = values.gather(1, by_id), ids.gather(1, by_id)
    values, order = values.sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, order)


def _sortable(values: Tensor) -> Tensor:
    """int64 that order as the float32 do; −0 equals 0."""
    bits = (values + 0.0).view(torch.int32).long()
    return torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
