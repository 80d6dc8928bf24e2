import numpy as np
import pytest

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.crossover import crossing


def test_crossing_by_hand() -> None:
    """Speed-up 2 at 1 and ½ at 4 in flight: the logarithms meet 0 halfway, at 2."""
    assert crossing(np.array([1.0, 4.0]), np.array([2.0, 0.5])) == pytest.approx(2.0)


def test_first_of_several_segments() -> None:
    """The lowest level counts: 1.5, 1.2, 0.8 cross between the second and the third."""
    # ln 1.2 = 0.1823, ln 0.8 = −0.2231: share 0.4497 of the way from ln 4 to ln 8
    found = crossing(np.array([1.0, 4.0, 8.0]), np.array([1.5, 1.2, 0.8]))
    assert found == pytest.approx(4 * 2 ** (0.1823216 / (0.1823216 + 0.2231436)), rel=1e-6)


@pytest.mark.parametrize("speedups", [(2.0, 1.5), (0.9, 0.8), (0.9, 1.1)])
def test_no_crossing_within_the_measured_levels(speedups: tuple[float, float]) -> None:
    """What stays above 1, or starts below it, does not fall to 1 in between."""
    assert crossing(np.array([1.0, 4.0]), np.array(speedups)) is None


def test_one_level_is_not_enough() -> None:
    """A line needs two points."""
    with pytest.raises(NotEnoughData):
        crossing(np.array([1.0]), np.array([2.0]))
