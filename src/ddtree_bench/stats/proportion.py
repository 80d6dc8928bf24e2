"""Shares of valid answers, and their difference between two servers asked the same."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.distributions import even_split_p_value, normal_half_width
from ddtree_bench.stats.interval import Interval


@dataclass(frozen=True, slots=True)
class Pairs:
    """The same questions on two sides, by who was right."""

    both: int
    first_only: int
    second_only: int
    neither: int

    @property
    def n(self) -> int:
        """Questions."""
        return self.both + self.first_only + self.second_only + self.neither

    @property
    def difference(self) -> float:
        """Share of the first − share of the second; raises NotEnoughData without questions."""
        if self.n == 0:
            raise NotEnoughData(0, 1, "questions asked of both")
        return (self.first_only - self.second_only) / self.n


def wilson(valid: int, n: int, level: float) -> Interval:
    """Wilson's score interval of a share; it stays within 0 and 1, also at its ends.

    Raises NotEnoughData if n is 0. Source: Wilson, J. Am. Stat. Assoc. 22 (1927) 209.
    """
    if n == 0:
        raise NotEnoughData(0, 1, "checked answers")
    z = normal_half_width(level)
    share = valid / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # at the ends the formula gives 0 and 1 but for rounding
    low = 0.0 if valid == 0 else middle - half
    high = 1.0 if valid == n else middle + half
    return Interval(low, high, level, n)


def paired_difference(pairs: Pairs, level: float) -> Interval:
    """Interval of `pairs.difference`: the Wilson intervals of both sides, correlation included.

    Raises NotEnoughData without questions. Source: Newcombe, Stat. Med. 17 (1998) 2635, method 10.
    """
    difference = pairs.difference
    first, second = pairs.both + pairs.first_only, pairs.both + pairs.second_only
    one, other = wilson(first, pairs.n, level), wilson(second, pairs.n, level)
    share_one, share_other = first / pairs.n, second / pairs.n
    phi = _correlation(pairs)

    def reach(a: float, b: float) -> float:
        return sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))

    return Interval(
        max(-1.0, difference - reach(share_one - one.low, other.high - share_other)),
        min(1.0, difference + reach(one.high - share_one, share_other - other.low)),
        level,
        pairs.n,
    )


def mcnemar_p_value(pairs: Pairs) -> float:
    """Two-sided exact p-value of no difference; only where one side alone is right counts."""
    return even_split_p_value(pairs.first_only, pairs.first_only + pairs.second_only)


def _correlation(pairs: Pairs) -> float:
    """φ of the fourfold table, a positive one corrected for continuity; 0 if a margin is empty."""
    a, b, c, d = pairs.both, pairs.first_only, pairs.second_only, pairs.neither
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    if margins == 0:
        return 0.0
    excess: float = a * d - b * c
    if excess > 0:
        excess = max(excess - pairs.n / 2, 0.0)
    return excess / sqrt(margins)
