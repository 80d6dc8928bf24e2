import numpy as np
import pytest

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.in_flight import mean_in_flight, most_in_flight

SENT_S = np.array([100.0, 100.0, 104.0])
ENDED_S = np.array([104.0, 102.0, 106.0])


def test_the_mean_is_weighted_by_time() -> None:
    """2 s with two, 2 s with one, 2 s with one again: 8 request seconds in 6 s."""
    assert mean_in_flight(SENT_S, ENDED_S) == pytest.approx(8 / 6)


def test_one_that_begins_as_another_ends_is_not_beside_it() -> None:
    """At 104 s one ends and one begins: two is the most, at 100 to 102 s."""
    assert most_in_flight(SENT_S, ENDED_S) == 2


def test_the_order_of_requests_is_irrelevant() -> None:
    """They come in the order of their conversations."""
    turned = (SENT_S[::-1], ENDED_S[::-1])
    assert mean_in_flight(*turned) == mean_in_flight(SENT_S, ENDED_S)
    assert most_in_flight(*turned) == most_in_flight(SENT_S, ENDED_S)


def test_eight_prompts_never_fill_sixteen_places() -> None:
    """Answers of 1 to 8 s, all sent at once: 36 request seconds in 8 s, 4.5 in flight."""
    sent_s, ended_s = np.zeros(8), np.arange(1.0, 9.0)
    assert mean_in_flight(sent_s, ended_s) == pytest.approx(4.5)
    assert most_in_flight(sent_s, ended_s) == 8


def test_nothing_sent() -> None:
    """No request: at most none, and no mean; nor where no time passes."""
    nothing, instant = np.empty(0), np.ones(2)
    assert most_in_flight(nothing, nothing) == 0
    for times in (nothing, instant):
        with pytest.raises(NotEnoughData):
            mean_in_flight(times, times)
