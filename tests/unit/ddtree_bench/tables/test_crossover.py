import pandas as pd
import pytest

from ddtree_bench.tables.comparisons import Curve, Point
from ddtree_bench.tables.crossover import crossover_frame


def curve(*points: tuple[int, float, float | None, float | None]) -> list[Curve]:
    """A server's curve by (concurrency, speed-up, low, high)."""
    return [Curve("tree", ("short", "longform"), tuple(Point(*point) for point in points))]


def test_crossover_by_hand() -> None:
    """2 at one and ½ at four in flight meet 1 at two; the interval's ends likewise."""
    # low: 1 and ¼ start at 1, so the lowest level; high: 4 and 1 end there
    (row,) = crossover_frame(curve((1, 2, 1, 4), (4, 0.5, 0.25, 1))).to_dict("records")
    assert row["crossover"] == pytest.approx(2.0)
    assert (row["crossover_low"], row["crossover_high"]) == (1.0, pytest.approx(4.0))
    assert row["said"] == "by the estimate pays up to about 2.0 in flight"
    assert row["classes"] == "short, longform"


def test_paying_everywhere_is_said() -> None:
    """What stays above 1 has no crossover within the measured levels."""
    (row,) = crossover_frame(curve((1, 2, None, None), (8, 1.5, None, None))).to_dict("records")
    assert pd.isna(row["crossover"])
    assert row["said"] == "by the estimate pays at all measured levels, up to 8 in flight"


def test_one_level_gives_no_row() -> None:
    """Nothing is said of load from one concurrency."""
    assert crossover_frame(curve((1, 2, 1, 4))).empty
