import numpy as np
import pytest
from numpy.random import Generator
from scipy import stats as scipy_stats  # type: ignore[import-untyped]  # scipy has no types

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.compare import (
    Blocks,
    Effect,
    LaunchNoise,
    MeanSquare,
    combined_df,
    holm,
    launch_noise,
    level,
    mean_effect,
    sign_test,
    speedup,
)
from ddtree_bench.stats.interval import FloatArray

QUIET = LaunchNoise(MeanSquare(0.0, 5), MeanSquare(0.0, np.inf))
"""Launches that do not differ at all."""


@pytest.fixture
def rng() -> Generator:
    return np.random.default_rng(7)


def crossed(rng: Generator, *, launches: int, prompts: int, shift: float = 0.0) -> Blocks:
    """Two classes of a server's logarithms with all the model's effects."""
    launch = rng.normal(0, 0.05, (launches, 1))
    return [
        shift + launch + rng.normal(0, 0.3, (1, prompts)) + rng.normal(0, 0.02, (launches, prompts))
        for _ in range(2)
    ]


def test_worked_example_of_launch_noise() -> None:
    """S² is the spread of launch means within servers, R the prompts' part of it."""
    # launch means 1 and 3 (server one), 5 and 5 (server two): squares 2 and 0, df 1 and 1: S² = 1
    # interaction of server one: [[0, 2], [3, 3]] − rows − columns + mean = ±0.5: squares 1
    # server two has none; df (2−1)(2−1) = 1 each: σ² = 0.5; R = 0.5 ÷ 2 prompts = 0.25
    one, two = np.array([[0.0, 2.0], [3.0, 3.0]]), np.array([[5.0, 5.0], [5.0, 5.0]])
    noise = launch_noise([[one], [two]])
    assert noise.launch_means == MeanSquare(1.0, 2.0)
    assert noise.residual == MeanSquare(0.25, 2.0)
    assert noise.variance == 0.75


def test_worked_example_of_a_speedup() -> None:
    """The variance is the prompts' part plus τ² for the launches of both sides."""
    # differences over launches: 0.4 and 0.2: mean 0.3, s² = 0.02, ÷ 2 prompts = 0.01
    # launches: τ² = 0.004 − 0.001 = 0.003, times 1/2 + 1/2
    reference = [np.array([[1.0, 2.0], [1.0, 2.0]])]
    candidate = [np.array([[0.6, 1.8], [0.6, 1.8]])]
    noise = LaunchNoise(MeanSquare(0.004, 5), MeanSquare(0.001, 20))
    effect = speedup(reference, candidate, noise)
    assert effect.log_value == pytest.approx(0.3)
    assert effect.value == pytest.approx(np.exp(0.3))
    assert effect.prompt_variance == pytest.approx(0.01)
    assert effect.launch_variance == pytest.approx(0.003)
    # Satterthwaite, df + 2 below and − 2: 0.013² ÷ (0.01²/3 + 0.004²/7 + 0.001²/22) − 2
    assert effect.df == pytest.approx(0.013**2 / (1e-4 / 3 + 1.6e-5 / 7 + 1e-6 / 22) - 2)
    assert (effect.n_prompts, effect.launches) == (2, (2, 2))


def test_a_single_estimate_keeps_its_degrees_of_freedom() -> None:
    """Alone, its square is right whatever it is; without any there is no doubt."""
    assert combined_df(0.3, [MeanSquare(0.3, 7)]) == pytest.approx(7)
    assert combined_df(0.3, [MeanSquare(0.3, 0.5), MeanSquare(9.0, 1)]) == 1
    assert combined_df(0.0, []) == np.inf


def test_quiet_launches_leave_the_paired_t_test(rng: Generator) -> None:
    """With one class and no launch noise, interval and p-value are the paired t test's."""
    slow, fast = rng.normal(1, 0.2, (1, 8)), rng.normal(0.9, 0.2, (1, 8))
    effect = speedup([slow], [fast], QUIET)
    oracle = scipy_stats.ttest_rel(slow[0], fast[0])
    assert effect.p_value() == pytest.approx(oracle.pvalue)
    bounds = oracle.confidence_interval(0.95)
    interval = effect.interval(0.95)
    assert (np.log(interval.low), np.log(interval.high)) == pytest.approx((bounds.low, bounds.high))


def test_swapped_arms_invert_the_ratio(rng: Generator) -> None:
    """Who is called candidate does not change what is found."""
    a, b = (crossed(rng, launches=2, prompts=5, shift=shift) for shift in (0.0, -0.4))
    noise = launch_noise([a, b])
    there, back = speedup(a, b, noise), speedup(b, a, noise)
    assert there.value == pytest.approx(1 / back.value)
    assert there.p_value() == pytest.approx(back.p_value())
    one, other = there.interval(0.95), back.interval(0.95)
    assert (one.low, one.high) == pytest.approx((1 / other.high, 1 / other.low))


def test_order_of_prompts_and_launches_is_irrelevant(rng: Generator) -> None:
    """Rows and columns may be sorted in any way, as long as both sides are alike."""
    a, b = (crossed(rng, launches=3, prompts=4) for _ in range(2))
    mixed = [[block[::-1][:, ::-1] for block in side] for side in (a, b)]
    straight = speedup(a, b, launch_noise([a, b]))
    turned = speedup(mixed[0], mixed[1], launch_noise(mixed))
    assert straight.interval(0.95).low == pytest.approx(turned.interval(0.95).low)


def test_what_a_prompt_does_to_both_cancels(rng: Generator) -> None:
    """Hard prompts slow both sides; the comparison does not see it."""
    a, b = (crossed(rng, launches=2, prompts=4) for _ in range(2))
    hard = np.array([0.0, 5.0, -3.0, 1.0])
    noise = launch_noise([a, b])
    shifted = speedup([x + hard for x in a], [x + hard for x in b], noise)
    assert shifted.standard_error == pytest.approx(speedup(a, b, noise).standard_error)
    assert launch_noise([[x + hard for x in a]]).variance == pytest.approx(
        launch_noise([a]).variance
    )


def test_identical_sides_have_no_effect() -> None:
    """Zero variance and zero difference: ratio 1, p = 1, an interval of no width."""
    same = [np.ones((2, 3))]
    effect = speedup(same, same, launch_noise([same]))
    assert effect.value == 1.0
    assert effect.p_value() == 1.0
    assert effect.interval(0.95).low == effect.interval(0.95).high == 1.0


def test_constant_difference_is_certain() -> None:
    """Zero variance and a difference: p = 0, nothing is divided by zero."""
    effect = speedup([np.ones((2, 3))], [np.zeros((2, 3))], QUIET)
    assert effect.p_value() == 0.0


def test_one_launch_each_tells_no_noise(rng: Generator) -> None:
    """A run of single launches has no estimate of what launches do."""
    with pytest.raises(NotEnoughData, match="1 launches of a server, at least 2 needed"):
        launch_noise([crossed(rng, launches=1, prompts=4) for _ in range(3)])
    with pytest.raises(NotEnoughData):
        launch_noise([])


def test_noise_is_pooled_over_servers(rng: Generator) -> None:
    """A server launched once borrows the noise of those launched twice."""
    once, twice = (crossed(rng, launches=n, prompts=4) for n in (1, 2))
    assert launch_noise([once, twice]) == launch_noise([twice])


def test_one_prompt_of_a_class_is_too_few() -> None:
    """The spread between prompts cannot be told from one."""
    with pytest.raises(NotEnoughData, match="1 prompts of a class, at least 2 needed"):
        mean_effect([np.array([0.1, 0.2]), np.array([0.1])], (2, 2), QUIET)


def test_one_prompt_leaves_its_noise_with_the_launches() -> None:
    """With one prompt, launch and residual cannot be told apart; the wider figure stays."""
    noise = launch_noise([[np.array([[1.0], [3.0]])]])
    assert noise.residual.value == 0.0
    assert noise.variance == 2.0  # ((1 − 2)² + (3 − 2)²) ÷ 1


def test_sides_of_different_shape_are_refused() -> None:
    """Unpaired data are a mistake of the caller, not a broadcast."""
    with pytest.raises(ValueError, match="same launches and prompts"):
        speedup([np.ones((2, 3))], [np.ones((1, 3))], QUIET)


def test_level_counts_its_launches_once() -> None:
    """A server's own level carries τ² ÷ L, a difference 2 τ² ÷ L."""
    noise = LaunchNoise(MeanSquare(0.004, 5), MeanSquare(0.0, np.inf))
    block = [np.array([[1.0, 2.0], [1.0, 2.0]])]
    assert level(block, noise).launch_variance == pytest.approx(0.002)
    assert speedup(block, block, noise).launch_variance == pytest.approx(0.004)


def test_floor_is_a_range_of_two_launches(rng: Generator) -> None:
    """A/A: 95 % of pairs of single launches are no further apart, however many were measured."""
    # S = 0.02: exp(1.96 · √2 · 0.02) = 1.057
    noise = LaunchNoise(MeanSquare(0.02**2, 5), MeanSquare(1e-4, 20))
    assert noise.floor == pytest.approx(1.057, abs=1e-3)
    few, many = (
        np.mean([launch_noise([crossed(rng, launches=n, prompts=9)] * 3).floor for _ in range(40)])
        for n in (4, 16)
    )
    # launches differ by 5 %: 1.149; the mean of 40 floors of 4 launches has an error of 0.01
    assert few == pytest.approx(1.149, abs=0.03)
    assert many == pytest.approx(1.149, abs=0.03)


def test_a_larger_run_is_foretold(rng: Generator) -> None:
    """An effect resized to three times the launches is one of such a run, on average.

    The residual is two fifths of the prompts' variance, which therefore falls, too. Over 300 runs
    the ratios have errors of up to 4 %: 15 % is four of them.
    """

    def effect(launches: int) -> Effect:
        prompts = rng.normal(0, 0.3, (1, 20))
        servers = [
            [
                prompts
                + rng.normal(0, 0.05, (1, 20))
                + launch
                + rng.normal(0, 0.06, (launches, 20))
                for _ in range(2)
            ]
            for launch in rng.normal(0, 0.05, (6, launches, 1))
        ]
        return speedup(servers[0], servers[1], launch_noise(servers))

    def parts(effects: list[Effect]) -> FloatArray:
        found = [(e.prompt_variance, e.launch_variance, e.df) for e in effects]
        means: FloatArray = np.mean(found, axis=0)
        return means

    foretold = parts([effect(2).resized(launches=3) for _ in range(300)])
    assert foretold == pytest.approx(parts([effect(6) for _ in range(300)]), rel=0.15)


def test_more_prompts_leave_the_launches_alone() -> None:
    """Four times the prompts: a quarter of their variance and of the residual's, τ² as it was."""
    noise = LaunchNoise(MeanSquare(0.005, 4), MeanSquare(0.001, 40))
    larger = Effect(0.1, (MeanSquare(0.002, 9),), noise, (2, 2), 10).resized(prompts=4)
    assert larger.prompts == (MeanSquare(0.0005, 39),)
    assert larger.launch_variance == pytest.approx(0.004)
    assert larger.noise.launch_means.value == pytest.approx(0.00425)
    assert larger.n_prompts == 40


def test_sign_test_agrees_with_the_binomial() -> None:
    """Ties do not count; seven of seven is 2 · 0.5⁷."""
    result = sign_test(np.array([0.1] * 7 + [0.001, -0.001]), tie=0.01)
    assert (result.wins, result.ties, result.losses) == (7, 2, 0)
    assert result.p_value == pytest.approx(2 * 0.5**7)
    mirrored = sign_test(np.array([-0.1] * 7))
    assert mirrored.losses == 7
    assert mirrored.p_value == pytest.approx(2 * 0.5**7)


def test_all_ties_decide_nothing() -> None:
    """No win and no loss is p = 1; no prompt is an error."""
    assert sign_test(np.zeros(4)).p_value == 1.0
    with pytest.raises(NotEnoughData):
        sign_test(np.array([]))


def test_holm_worked_example() -> None:
    """Smallest p times the number of tests, then one less each, never falling, at most 1."""
    # sorted 0.01·3 = 0.03, 0.02·2 = 0.04, 0.6·1; the order given comes back
    assert holm(np.array([0.6, 0.01, 0.02])) == pytest.approx([0.6, 0.03, 0.04])
    # 0.04·2 = 0.08, then 0.045·1 = 0.045 may not fall below it
    assert holm(np.array([0.04, 0.045])) == pytest.approx([0.08, 0.08])
    assert holm(np.array([0.9, 0.8])) == pytest.approx([1.0, 1.0])
    assert len(holm(np.array([]))) == 0


def test_interval_covers_and_is_no_wider_than_needed(rng: Generator) -> None:
    """Of 400 simulated runs about 95 % hold the truth.

    The bounds 91.5 % and 98 % are 3.2 and 2.8 standard errors (1.1 %) away: a false alarm in about
    300 seeds; this seed is fixed.
    """
    held = 0
    for _ in range(400):
        servers = [crossed(rng, launches=2, prompts=6) for _ in range(5)]
        interval = speedup(servers[0], servers[1], launch_noise(servers)).interval(0.95)
        held += interval.low <= 1 <= interval.high
    assert 0.915 <= held / 400 <= 0.98
