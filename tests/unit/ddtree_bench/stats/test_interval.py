import pytest

from ddtree_bench.stats.interval import Interval


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (float("nan"), 1.0)])
def test_interval_runs_upwards(low: float, high: float) -> None:
    """Swapped or missing ends are refused, so no report can print them."""
    with pytest.raises(ValueError, match="runs upwards"):
        Interval(low, high, 0.95, 3)


def test_level_is_a_probability() -> None:
    """95 instead of 0.95 is refused."""
    with pytest.raises(ValueError, match="level"):
        Interval(1.0, 2.0, 95, 3)
