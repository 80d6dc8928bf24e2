"""Percentiles with intervals that assume no distribution.

The interval of a percentile runs between two values of the sample (order statistics): the number
of values at or below the true percentile is binomial, whatever their distribution is. Values of the
same question (its repeats, its launches) are not independent; the interval therefore counts
questions, which makes it wider than the count of values would.
"""

from __future__ import annotations

import math

import numpy as np

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.distributions import binomial_bounds
from ddtree_bench.stats.interval import FloatArray, Interval


def percentile(values: FloatArray, share: float) -> float:
    """The smallest of `values` `[n]` that at least `share` of them do not exceed.

    Raises NotEnoughData without values.
    """
    if len(values) == 0:
        raise NotEnoughData(0, 1, "values")
    return float(np.sort(values)[_rank(share, len(values)) - 1])


def least_n(share: float, level: float) -> int:
    """Fewest independent values that leave one on either side of the percentile at `level`.

    >>> [least_n(share, 0.95) for share in (0.5, 0.9, 0.99)]
    [6, 36, 368]
    """
    rarer = max(share, 1 - share)
    return math.ceil(math.log((1 - level) / 2) / math.log(rarer))


def percentile_interval(
    values: FloatArray, share: float, level: float, independent: int | None = None
) -> Interval:
    """Interval of a percentile between two of `values` `[n]`.

    Args:
        values: the sample.
        share: 0.5 for the median.
        level: of confidence, at least so much.
        independent: how many of the values are independent; default: all.

    Raises:
        NotEnoughData: fewer independent values than `least_n`.
    """
    count = len(values) if independent is None else min(independent, len(values))
    need = least_n(share, level)
    if count < need:
        raise NotEnoughData(count, need, f"independent values for the {share:.0%} point")
    low, high = binomial_bounds(count, share, level)
    stretch = len(values) / count
    ordered = np.sort(values)
    first = max(1, math.floor(low * stretch))
    last = min(len(values), math.ceil((high + 1) * stretch))
    return Interval(float(ordered[first - 1]), float(ordered[last - 1]), level, count)


def _rank(share: float, count: int) -> int:
    """Place of the percentile among `count` sorted values, from 1."""
    return max(1, math.ceil(share * count - 1e-9))  # 0.9 · 10 is 9.000000000000002 in floats
