"""How far the target follows the drafts."""

from __future__ import annotations

import numpy as np

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.interval import FloatArray, IntArray


def acceptance_length(produced: IntArray, steps: IntArray) -> float:
    """Tokens per verify step, bonus included: Σ produced ÷ Σ steps.

    Both `[R]`, an entry a request; a step that accepts i drafts produces i + 1 tokens. Prefill's
    token is no step's. Raises NotEnoughData if Σ steps is 0.
    """
    total = int(np.sum(steps))
    if total == 0:
        raise NotEnoughData(0, 1, "verify steps")
    return float(np.sum(produced) / total)


def histogram_length(histogram: IntArray) -> float:
    """Acceptance length from `histogram[i]` = steps that accepted i drafts: Σ (i + 1) h ÷ Σ h.

    Raises NotEnoughData if the histogram is empty or all zero.
    """
    return acceptance_length(histogram * (np.arange(len(histogram)) + 1), histogram)


def histogram_shares(histogram: IntArray) -> FloatArray:
    """Share of verify steps that accepted i drafts, `[len(histogram)]`; sums to 1.

    Raises NotEnoughData if the histogram is empty or all zero.
    """
    total = int(np.sum(histogram))
    if total == 0:
        raise NotEnoughData(0, 1, "verify steps")
    shares: FloatArray = histogram / total
    return shares
