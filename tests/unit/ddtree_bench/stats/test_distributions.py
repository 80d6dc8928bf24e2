"""Special functions against scipy's own distributions."""

import math

import pytest
from scipy import stats

from ddtree_bench.stats.distributions import (
    chi_square_p_value,
    even_split_p_value,
    normal_half_width,
    t_half_width,
    t_p_value,
)


@pytest.mark.parametrize("df", [1.0, 2.7, 15.0, 400.0, math.inf])
def test_t(df: float) -> None:
    """Also with fractional and infinite degrees of freedom."""
    assert t_half_width(0.95, df) == pytest.approx(stats.t.ppf(0.975, df))
    for t in (0.0, -1.3, 4.0, 12.0):
        assert t_p_value(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-6)


@pytest.mark.parametrize(("wins", "trials"), [(0, 0), (0, 1), (3, 6), (1, 9), (60, 61), (250, 600)])
def test_even_split(wins: int, trials: int) -> None:
    """The exact test; 1 without trials."""
    expected = stats.binomtest(wins, trials).pvalue if trials else 1.0
    assert even_split_p_value(wins, trials) == pytest.approx(expected)
    assert even_split_p_value(trials - wins, trials) == pytest.approx(expected)


def test_normal_and_chi_square() -> None:
    """1.96 standard deviations; 3.84 with one degree of freedom."""
    assert normal_half_width(0.95) == pytest.approx(stats.norm.ppf(0.975))
    assert chi_square_p_value(3.84, 1) == pytest.approx(stats.chi2.sf(3.84, 1))
    assert chi_square_p_value(800.0, 3) == pytest.approx(stats.chi2.sf(800.0, 3))
