import numpy as np
import pytest
from numpy.random import Generator

from ddtree_bench.stats.compare import (
    Blocks,
    Effect,
    LaunchNoise,
    MeanSquare,
    launch_noise,
    speedup,
)
from ddtree_bench.stats.interval import Interval
from ddtree_bench.stats.verdict import (
    Family,
    Rule,
    Size,
    Verdict,
    judge,
    verdict_of,
)

RULE = Rule(margin=0.02, confidence=0.95)


def wide(low: float, high: float) -> Interval:
    return Interval(low, high, 0.95, 20)


def narrow(low: float, high: float) -> Interval:
    return Interval(low, high, 0.90, 20)


def effect(log_value: float, *, prompts: float, launches: float) -> Effect:
    noise = LaunchNoise(MeanSquare(launches, 10), MeanSquare(0.0, np.inf))
    return Effect(log_value, (MeanSquare(prompts, 10),), noise, (2, 2), n_prompts=20)


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


def test_verdict_of_an_effect_builds_both_intervals() -> None:
    """A clear effect is faster, the same estimate with more noise is not."""
    assert verdict_of(effect(0.3, prompts=1e-4, launches=1e-4), 0.001, RULE) is Verdict.FASTER
    assert verdict_of(effect(0.3, prompts=0.1, launches=0.0), 0.3, RULE) is Verdict.UNDECIDED


def measured(rng: Generator, speedup: float, *, launches: int, noise: float) -> list[Blocks]:
    """Two servers and eight bystanders, of five classes and 20 prompts, with noisy launches."""
    shifts = [0.0, -np.log(speedup), *np.zeros(8)]
    prompts = rng.normal(0, 0.3, (5, 1, 20))
    return [
        list(
            shift
            + prompts
            + rng.normal(0, 0.05, (5, 1, 20))
            + rng.normal(0, noise, (1, launches, 1))
            + rng.normal(0, 0.02, (5, launches, 20))
        )
        for shift in shifts
    ]


def family_of(servers: list[Blocks]) -> Family:
    """All against the first, as a run would test them."""
    noise = launch_noise(servers)
    return Family([speedup(servers[0], other, noise) for other in servers[1:]], RULE)


def test_more_launches_never_make_faster_less_likely() -> None:
    """A true 1.20 with launches that differ by 5 % is found more often with each doubling.

    Of 300 runs 57, 96 and 100 % find it; the bounds are 3.7 standard errors away.
    """
    rng = np.random.default_rng(5)
    found = [
        sum(
            family_of(measured(rng, 1.2, launches=n, noise=0.053)).verdict(0) is Verdict.FASTER
            for _ in range(60)
        )
        for n in (2, 4, 8)
    ]
    assert found == sorted(found)
    assert found[0] <= 48
    assert found[2] >= 57


def test_advice_is_the_first_number_of_launches_that_the_rule_accepts() -> None:
    """Effects built for each number of launches, by hand: Holm's factor is in the answer."""
    # n launches a side: z = 0.12 ÷ √(1e-4 + 0.01 ÷ n), degrees of freedom as good as infinite
    # alone p < 0.05 takes z > 1.96: 0.003748 > 1e-4 + 0.01 ÷ n, n > 2.7
    # of ten it takes p < 0.005, z > 2.807: 0.001828 > 1e-4 + 0.01 ÷ n, n > 5.8
    noise = LaunchNoise(MeanSquare(0.005, 1e6), MeanSquare(0.0, np.inf))
    effect = Effect(0.12, (MeanSquare(1e-4, 1e6),), noise, (2, 2), 20)
    others = [Effect(0.0, (MeanSquare(1e-4, 1e6),), noise, (2, 2), 20)] * 9
    alone, among = Family([effect], RULE), Family([effect, *others], RULE)
    assert alone.what_would_decide(0) == "limited by launches, about 3 instead of 2 would decide"
    assert among.what_would_decide(0) == "limited by launches, about 6 instead of 2 would decide"


def test_advice_is_what_trying_every_number_finds() -> None:
    """Few degrees of freedom and ten tests: an interval that excludes 1 and is yet undecided."""
    noise = LaunchNoise(MeanSquare(0.0028, 9), MeanSquare(2e-5, 800))
    shifts = (0.13, *np.zeros(9))
    effects = [Effect(shift, (MeanSquare(4e-5, 19),) * 5, noise, (2, 2), 100) for shift in shifts]
    family = Family(effects, RULE)
    assert effects[0].interval(0.95).low > 1
    undecided = [family.verdict(0, Size(launches=n / 2)) is Verdict.UNDECIDED for n in range(2, 10)]
    needed = 2 + sum(undecided)
    assert undecided == [True] * (needed - 2) + [False] * (10 - needed)
    said = f"limited by launches, about {needed} instead of 2 would decide"
    assert family.what_would_decide(0) == said
    assert needed > 3


def test_undecided_by_prompts_says_how_many_times_as_many() -> None:
    """The larger part of the variance is the one that is named."""
    # z > 1.96 for 0.1: variance under 0.0026, of which launches take 0.0005: 0.008 ÷ 0.0021 = 3.8
    noise = LaunchNoise(MeanSquare(0.0005, 1e6), MeanSquare(0.0, np.inf))
    family = Family([Effect(0.1, (MeanSquare(0.008, 1e6),), noise, (2, 2), 20)], RULE)
    said = "limited by prompts, about 4 times as many would decide"
    assert family.what_would_decide(0) == said


def test_hopeless_cases_say_so() -> None:
    """No number up to the bound does: the bound is named."""
    noise = LaunchNoise(MeanSquare(0.01, 1e6), MeanSquare(0.0, np.inf))
    prompts = (MeanSquare(0.004, 1e6),)
    by_launches = Family([Effect(0.03, prompts, noise, (2, 2), 20)], RULE)
    by_prompts = Family([Effect(0.03, prompts, noise, (6, 6), 20)], RULE)
    said = "limited by launches, more than 40 would be needed instead of 2"
    assert by_launches.what_would_decide(0) == said
    said = "limited by prompts, more than 20 times as many would be needed"
    assert by_prompts.what_would_decide(0) == said


def test_every_verdict_has_a_sentence() -> None:
    """Codes and sentences are distinct, so that tables and text can be told apart."""
    assert len({verdict.sentence for verdict in Verdict}) == len(Verdict)
