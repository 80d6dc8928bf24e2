import pytest

from ddtree_bench.stats.compare import Effect
from ddtree_bench.stats.interval import Interval
from ddtree_bench.stats.verdict import (
    Rule,
    Verdict,
    judge,
    verdict_of,
    what_would_decide,
)

RULE = Rule(margin=0.02, confidence=0.95)


def wide(low: float, high: float) -> Interval:
    return Interval(low, high, 0.95, 20)


def narrow(low: float, high: float) -> Interval:
    return Interval(low, high, 0.90, 20)


def effect(log_value: float, *, prompts: float, launches: float) -> Effect:
    return Effect(log_value, prompts, launches, df=10, n_prompts=20, n_launches=2)


@pytest.mark.parametrize(
    ("low", "high", "p", "verdict"),
    [
        (1.03, 1.30, 0.001, Verdict.FASTER),
        (1.01, 1.30, 0.001, Verdict.FASTER_BELOW_MARGIN),
        (1.02, 1.30, 0.001, Verdict.FASTER_BELOW_MARGIN),  # on the margin is not beyond it
        (0.70, 0.97, 0.001, Verdict.SLOWER),
        (0.70, 0.99, 0.001, Verdict.SLOWER_BELOW_MARGIN),
        (0.99, 1.01, 0.800, Verdict.EQUIVALENT),
        (0.90, 1.10, 0.800, Verdict.UNDECIDED),
        (1.03, 1.30, 0.060, Verdict.UNDECIDED),  # not after the correction for many comparisons
        (1.001, 1.01, 0.060, Verdict.EQUIVALENT),
    ],
)
def test_truth_table(low: float, high: float, p: float, verdict: Verdict) -> None:
    """One verdict for each place of the interval against 1 and the margin."""
    assert judge(wide(low, high), narrow(low, high), p, RULE) is verdict


def test_swapped_arms_mirror_the_verdict() -> None:
    """What is faster one way is slower the other way, at the same margin."""
    for low, high in [(1.03, 1.3), (1.01, 1.3)]:
        there = judge(wide(low, high), narrow(low, high), 0.001, RULE)
        back = judge(wide(1 / high, 1 / low), narrow(1 / high, 1 / low), 0.001, RULE)
        assert back.value == there.value.replace("faster", "slower")


def test_equivalence_uses_the_narrow_interval() -> None:
    """Two one-sided tests at 5 % are the 90 % interval, not the 95 % one."""
    assert judge(wide(0.97, 1.03), narrow(0.985, 1.015), 0.9, RULE) is Verdict.EQUIVALENT


def test_a_difference_must_exceed_the_noise_floor() -> None:
    """What two launches of one server differ by is no difference worth acting on."""
    assert Rule(0.02, 0.95, floor=1.05).excess == pytest.approx(0.05)
    assert Rule(0.02, 0.95, floor=1.01).excess == 0.02
    assert Rule(0.02, 0.95).excess == 0.02
    noisy = Rule(0.02, 0.95, floor=1.05)
    assert judge(wide(1.03, 1.06), wide(1.04, 1.05), 0.001, RULE) is Verdict.FASTER
    assert judge(wide(1.03, 1.06), wide(1.04, 1.05), 0.001, noisy) is Verdict.FASTER_BELOW_MARGIN


def test_noise_is_no_evidence_of_equality() -> None:
    """A floor of 40 % does not make an interval of ± 30 % equivalent."""
    noisy = Rule(0.02, 0.95, floor=1.40)
    assert judge(wide(0.7, 1.3), wide(0.75, 1.25), 0.9, noisy) is Verdict.UNDECIDED
    assert judge(wide(0.98, 1.02), wide(0.985, 1.015), 0.9, noisy) is Verdict.EQUIVALENT


def test_verdict_of_an_effect_builds_both_intervals() -> None:
    """A clear effect is faster, the same estimate with more noise is not."""
    assert verdict_of(effect(0.3, prompts=1e-4, launches=1e-4), 0.001, RULE) is Verdict.FASTER
    assert verdict_of(effect(0.3, prompts=0.1, launches=0.0), 0.3, RULE) is Verdict.UNDECIDED


def test_undecided_says_what_limits_it_and_how_much_more() -> None:
    """The larger part of the variance is named with the number that would do."""
    # t(10) = 2.228; allowed (0.1 ÷ 2.228)² = 0.002014
    # prompts: 20 · 0.004 ÷ (0.002014 − 0.001) = 78.9; launches: 2 · 0.004 ÷ 0.001014 = 7.9
    by_prompts = what_would_decide(effect(0.1, prompts=0.004, launches=0.001), RULE)
    by_launches = what_would_decide(effect(0.1, prompts=0.001, launches=0.004), RULE)
    assert by_prompts == "limited by prompts, about 79 instead of 20 would decide"
    assert by_launches == "limited by launches, about 8 instead of 2 would decide"


def test_hopeless_cases_name_no_number() -> None:
    """Where the other part alone is too large, more of this one is no advice."""
    advice = what_would_decide(effect(0.01, prompts=0.004, launches=0.003), RULE)
    assert advice == "limited by prompts, more of them alone would not decide soon"


def test_every_verdict_has_a_sentence() -> None:
    """Codes and sentences are distinct, so that tables and text can be told apart."""
    assert len({verdict.sentence for verdict in Verdict}) == len(Verdict)
