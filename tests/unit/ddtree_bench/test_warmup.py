import pytest

from ddtree_bench.config import Warmup
from ddtree_bench.errors import RequestError
from ddtree_bench.status import Status
from ddtree_bench.warmup import WarmedUp, warm_up


def asked(*seconds):
    return iter(seconds).__next__


def test_two_equal_answers_end_the_warm_up():
    """9 → 2 differ; 2 → 1.9 differ by 0.1 ÷ 2 = 5 %, less than 10 %: three requests."""
    assert warm_up(asked(9, 2, 1.9, 1), Warmup()) == WarmedUp(3, True, (9, 2, 1.9))


def test_the_least_number_is_made_however_steady():
    """Equal answers do not end it before `min_requests`."""
    assert warm_up(asked(1, 1, 1, 1, 1), Warmup(min_requests=4)).requests == 4


def test_one_request_is_never_steady():
    """With `min_requests: 1` there is still a second one to compare with."""
    assert warm_up(asked(1, 1), Warmup(min_requests=1)) == WarmedUp(2, True, (1, 1))


def test_an_unsteady_server_is_told():
    """The cap ends it, and it says so."""
    assert warm_up(asked(1, 2, 1), Warmup(max_requests=3)) == WarmedUp(3, False, (1, 2, 1))


def test_a_difference_of_just_the_tolerance_is_not_steady():
    """|10 − 9| = 1 is not less than 0.1 × 10."""
    assert not warm_up(asked(10, 9), Warmup(max_requests=2)).steady


def test_a_failed_answer_passes_through():
    """The caller decides what a failure means."""

    def fails():
        raise RequestError(Status.HUNG, "nothing for 5 s")

    with pytest.raises(RequestError):
        warm_up(fails, Warmup())
