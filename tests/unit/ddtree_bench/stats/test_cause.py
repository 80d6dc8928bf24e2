import pytest

from ddtree_bench.stats.cause import cause_of


@pytest.mark.parametrize(
    ("speedup", "acceptance", "step", "said"),
    [
        (1.15, 1.2, 1.05, "won by acceptance"),
        (0.90, 1.1, 1.25, "lost by cost"),
        (0.90, 0.88, 1.00, "lost by acceptance"),
        (1.20, 1.0, 0.80, "won by cost"),
        (0.90, 1.1, 1.10, "lost by time outside of steps"),
        (1.001, 1.3, 1.3, "neither won nor lost"),
    ],
)
def test_the_decisive_factor(speedup: float, acceptance: float, step: float, said: str) -> None:
    """Of the factors that push the way it went the strongest one is named."""
    assert cause_of(speedup, acceptance, step).said == said


def test_factors_multiply_to_the_speedup() -> None:
    """Acceptance × cost × rest is the speed-up, whatever the ratios."""
    # 1.2 ÷ 1.5 = 0.8 is predicted, 0.72 measured: the rest is 0.9
    cause = cause_of(0.72, 1.2, 1.5)
    assert cause.rest == pytest.approx(0.9)
    assert cause.acceptance * cause.cost * cause.rest == pytest.approx(0.72)


def test_time_to_first_token_is_told_apart_from_the_rest() -> None:
    """Steps predict 1.2; with 0.75 of that lost before the first token, 0.9 is left of it all."""
    cause = cause_of(0.9, 1.2, 1.0, 0.75)
    assert cause.rest == pytest.approx(1.0)
    assert cause.said == "lost by time to first token"
    assert cause_of(0.9, 1.2, 1.0).said == "lost by time outside of steps"
    # 0.9 before the first token, so 0.833 after it and in no step
    assert cause_of(0.9, 1.2, 1.0, 0.9).said == "lost by the rest"


def test_swapped_sides_invert_the_factors() -> None:
    """What made one side faster made the other slower."""
    there, back = cause_of(1.15, 1.2, 1.05), cause_of(1 / 1.15, 1 / 1.2, 1 / 1.05)
    assert back.acceptance == pytest.approx(1 / there.acceptance)
    assert (there.said, back.said) == ("won by acceptance", "lost by acceptance")


@pytest.mark.parametrize(
    "ratios",
    [(0.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, float("nan")), (1.0, 1.0, 1.0, float("nan"))],
)
def test_ratios_lie_above_zero(ratios: tuple[float, ...]) -> None:
    """What was not measured has no cause."""
    with pytest.raises(ValueError, match="above 0"):
        cause_of(*ratios)
