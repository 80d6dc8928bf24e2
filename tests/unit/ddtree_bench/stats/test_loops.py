import numpy as np
import pytest

from ddtree_bench.stats.loops import Loop, is_degenerate, longest_loop


def ids(*parts: list[int]) -> np.ndarray:
    return np.array([token for part in parts for token in part], dtype=np.int32)


def test_loop_by_hand() -> None:
    """A phrase of three, five times and two tokens more, between other text."""
    found = longest_loop(ids([9, 8], [1, 2, 3] * 5, [1, 2], [7]))
    assert found == Loop(period=3, tokens=17)
    assert found.repeats == pytest.approx(17 / 3)


def test_the_shorter_period_names_the_loop() -> None:
    """Four equal tokens are a phrase of one four times, not of two twice."""
    assert longest_loop(ids([5] * 4)) == Loop(period=1, tokens=4)


@pytest.mark.parametrize("some", [[], [1], [1, 2, 3], [1, 2, 1]])
def test_no_phrase_twice_is_no_loop(some: list[int]) -> None:
    """A phrase must be there twice in a row, whole."""
    assert longest_loop(ids(some)) is None


@pytest.mark.parametrize(
    ("period", "times", "fault"), [(6, 4, True), (6, 3, False), (1, 24, True), (1, 23, False)]
)
def test_a_fault_needs_repeats_and_length(period: int, times: int, fault: bool) -> None:
    """At least four times over at least 24 tokens; a row of 23 dashes is no fault."""
    assert is_degenerate(ids(list(range(period)) * times)) is fault


def test_longer_phrases_are_not_looked_for() -> None:
    """A phrase longer than the longest period is text."""
    assert longest_loop(ids(list(range(40)) * 3)) is None
