"""Shares of valid answers and their paired difference."""

from __future__ import annotations

import numpy as np
import pytest

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.proportion import Pairs, mcnemar_p_value, paired_difference, wilson


def test_wilson_by_hand() -> None:
    """15 of 148 at 95 %, as worked out in Newcombe, Stat. Med. 17 (1998) 857, table I."""
    interval = wilson(15, 148, 0.95)
    assert (interval.low, interval.high) == (
        pytest.approx(0.0624, abs=1e-4),
        pytest.approx(0.1605, abs=1e-4),
    )


def test_wilson_at_its_ends() -> None:
    """None valid of n: low is 0, high is z² ÷ (n + z²); all valid mirrors it."""
    z2 = 1.959964**2
    none, every = wilson(0, 20, 0.95), wilson(20, 20, 0.95)
    assert (none.low, none.high) == (0.0, pytest.approx(z2 / (20 + z2), rel=1e-6))
    assert (every.low, every.high) == (pytest.approx(1 - none.high), 1.0)


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        # Newcombe, Stat. Med. 17 (1998) 2635, table II, method 10
        ((36, 12, 2, 0), 0.0569, 0.3404),
        ((20, 12, 2, 16), 0.0562, 0.3292),
    ],
)
def test_paired_difference_of_the_source(
    counts: tuple[int, int, int, int], low: float, high: float
) -> None:
    """The worked tables of the formula's source."""
    interval = paired_difference(Pairs(*counts), 0.95)
    assert (interval.low, interval.high) == (
        pytest.approx(low, abs=1e-4),
        pytest.approx(high, abs=1e-4),
    )


def test_swapped_sides_negate_the_difference() -> None:
    """Neither side is special; p does not change."""
    one, other = Pairs(7, 5, 2, 6), Pairs(7, 2, 5, 6)
    a, b = paired_difference(one, 0.9), paired_difference(other, 0.9)
    assert one.difference == -other.difference
    assert (a.low, a.high) == (pytest.approx(-b.high), pytest.approx(-b.low))
    assert mcnemar_p_value(one) == mcnemar_p_value(other)


def test_mcnemar_counts_only_what_differs() -> None:
    """5 against 0: 2 · (1/2)⁵ = 0.0625, however many both got right; no difference gives 1."""
    assert mcnemar_p_value(Pairs(100, 5, 0, 3)) == pytest.approx(0.0625)
    assert mcnemar_p_value(Pairs(9, 0, 0, 1)) == 1.0


def test_nothing_asked_is_no_share() -> None:
    """No answers give an error, not 0 %."""
    with pytest.raises(NotEnoughData):
        wilson(0, 0, 0.95)
    with pytest.raises(NotEnoughData):
        paired_difference(Pairs(0, 0, 0, 0), 0.95)


def test_the_paired_interval_covers() -> None:
    """1,000 draws of 40 pairs, shares 0.6 and 0.5: coverage at 95 % is between 92 % and 99 %.

    With true coverage 95 % (SD 0.7 %) a false alarm is rarer than 1 in 10,000.
    """
    rng = np.random.default_rng(1)
    # P(both), P(first only), P(second only), P(neither): difference 0.3 − 0.2 = 0.1
    drawn = rng.multinomial(40, [0.3, 0.3, 0.2, 0.2], size=1000)
    intervals = [paired_difference(Pairs(*map(int, row)), 0.95) for row in drawn]
    covered = np.mean([interval.low <= 0.1 <= interval.high for interval in intervals])
    assert 0.92 <= covered <= 0.99
