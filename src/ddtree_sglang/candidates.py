"""The drafter's K most probable tokens at each depth, with their log-probabilities.

Ranked by logit, equal logits by token id, in float32: the order of `ddtree.tree.rank_candidates`
on the log-softmax, except where rounding makes log-probabilities of different logits equal at the
K-th place, where it may keep the other one of two equals.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

_ID_BITS: Final = 32


def top_candidates(logits: Tensor, topk: int) -> tuple[Tensor, Tensor]:
    """Return log-probabilities `[M, K]` float32, descending, and their token ids `[M, K]` int64.

    Waits for the device, so it is for the CPU and for tests; `candidates_kernel` does not.

    Args:
        logits: `[M, V]`, floating point.
        topk: K ≤ V.
    """
    values = logits.float()
    top, ids = values.topk(topk)
    if (values >= top[:, -1:]).sum() > ids.numel():
        ids = _first_of_equals(values, topk)  # topk leaves open which equals it keeps
    norm = values.logsumexp(-1, keepdim=True)
    return rank_by_log_prob(values.gather(1, ids) - norm, ids)


def _first_of_equals(values: Tensor, topk: int) -> Tensor:
    """`[M, K]` ids of the largest values, of equals those with the smallest ids."""
    lowest = (1 << _ID_BITS) - 1
    reversed_ids = lowest - torch.arange(values.shape[1], device=values.device)
    keys = (_sortable(values) << _ID_BITS) | reversed_ids
    return lowest - (keys.topk(topk).values & lowest)


def rank_by_log_prob(log_probs: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return both `[M, K]` sorted by log-probability, equals by id.

    Subtracting the norm can make equals of different logits, which then count by id.
    """
    by_id = ids.argsort(1)
    log_probs, ids = log_probs.gather(1, by_id), ids.gather(1, by_id)
    log_probs, order = log_probs.sort(dim=1, descending=True, stable=True)
    return log_probs, ids.gather(1, order)


def _sortable(values: Tensor) -> Tensor:
    """int64 that order as the float32 do; −0 equals 0."""
    bits = (values + 0.0).view(torch.int32).long()
    return torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
