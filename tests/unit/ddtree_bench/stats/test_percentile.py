import numpy as np
import pytest

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.percentile import least_n, percentile, percentile_interval


@pytest.mark.parametrize(("share", "value"), [(0.5, 5.0), (0.9, 9.0), (0.91, 10.0), (0.01, 1.0)])
def test_percentile_is_a_value_of_the_sample(share: float, value: float) -> None:
    """The smallest value that at least the share does not exceed; nothing is interpolated."""
    # 1 to 10: nine of ten do not exceed 9
    assert percentile(np.arange(10.0, 0.0, -1.0), share) == value


def test_percentile_needs_a_value() -> None:
    """Nothing has no percentile."""
    with pytest.raises(NotEnoughData):
        percentile(np.array([]), 0.5)


@pytest.mark.parametrize(("share", "need"), [(0.5, 6), (0.9, 36), (0.1, 36), (0.99, 368)])
def test_least_n_leaves_a_value_on_either_side(share: float, need: int) -> None:
    """The chance that all values lie on one side is at most 2.5 % with so many, not with fewer."""
    # median: 0.5^6 = 0.0156 ≤ 0.025 < 0.5^5 = 0.0313
    rarer = max(share, 1 - share)
    assert least_n(share, 0.95) == need
    assert rarer**need <= 0.025 < rarer ** (need - 1)


def test_no_p99_from_twenty_values() -> None:
    """Twenty values say nothing of the 99th percentile; the error tells how many would."""
    with pytest.raises(NotEnoughData, match=r"20 .*99%.* 368"):
        percentile_interval(np.arange(20.0), 0.99, 0.95)


def test_median_interval_by_the_binomial_table() -> None:
    """Ten values: from the second to the ninth, which covers 97.9 %."""
    # P(B(10, ½) ≤ 1) = 11 ÷ 1024 = 0.0107 ≤ 0.025; with ≤ 2 it is 0.0547
    interval = percentile_interval(np.arange(1.0, 11.0), 0.5, 0.95)
    assert (interval.low, interval.high, interval.n) == (2.0, 9.0, 10)


def test_repeats_of_a_question_do_not_narrow_the_interval() -> None:
    """Each value four times over gives the interval of the ten, counted once."""
    once = percentile_interval(np.arange(1.0, 11.0), 0.5, 0.95)
    again = percentile_interval(np.repeat(np.arange(1.0, 11.0), 4), 0.5, 0.95, independent=10)
    alone = percentile_interval(np.repeat(np.arange(1.0, 11.0), 4), 0.5, 0.95)
    assert (again.low, again.high) == (once.low, once.high)
    assert alone.high < again.high


def test_interval_covers_at_least_its_level() -> None:
    """Of 2,000 skewed samples the interval holds the true 90th percentile in 95 % or more."""
    # allowed: 4 standard errors of 0.5 % under 95 %; false alarm about 3 in 100,000
    rng = np.random.default_rng(1)
    truth = float(np.exp(1.2815515655446004))
    held = 0
    for _ in range(2000):
        interval = percentile_interval(rng.lognormal(size=60), 0.9, 0.95)
        held += interval.low <= truth <= interval.high
    assert held / 2000 > 0.95 - 4 * 0.005
