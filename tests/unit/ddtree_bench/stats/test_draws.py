"""The test of two samplers, with samplers that are right and samplers that are subtly wrong."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.draws import same_distribution

Draws = list[tuple[int, ...]]
TARGET = np.array([0.42, 0.3, 0.13, 0.08, 0.05, 0.02])
DRAFTER = np.array([0.2, 0.5, 0.06, 0.1, 0.1, 0.04])
TOKENS, SEEDS = 2, 1000


def test_the_statistic_by_hand() -> None:
    """Two tokens, 30:10 against 20:20: expected 25 and 15 on each side.

    4 cells of (5)² ÷ 25 or ÷ 15: 1 + 1 + 1.667 + 1.667 = 5.333.
    """
    found = same_distribution([(7,)] * 30 + [(8,)] * 10, [(7,)] * 20 + [(8,)] * 20)
    assert found.statistic == pytest.approx(16 / 3)
    assert (found.df, found.prefixes, found.tokens) == (1, 1, 80)
    assert found.p_value == pytest.approx(stats.chi2.sf(16 / 3, 1))


def test_prefixes_add() -> None:
    """The second token is compared after each first token apart: as one table per prefix."""
    one = [(1, 5)] * 20 + [(1, 6)] * 20 + [(2, 5)] * 40
    other = [(1, 5)] * 20 + [(1, 6)] * 20 + [(2, 6)] * 40
    found = same_distribution(one, other)
    # first tokens agree (0), after 1 they agree (0), after 2 they never do: 80 draws, all in 80
    assert found.statistic == pytest.approx(80)
    assert (found.df, found.prefixes, found.tokens) == (3, 3, 320)


def test_rare_tokens_are_put_together() -> None:
    """Ten tokens drawn once each would make ten cells that expect half a draw."""
    one = [(0,)] * 40 + [(n,) for n in range(1, 11)]
    other = [(0,)] * 40 + [(n,) for n in range(11, 21)]
    found = same_distribution(one, other)
    assert (found.statistic, found.df) == (pytest.approx(0), 1)


def test_too_few_rare_tokens_join_the_rarest_common_one() -> None:
    """One stray draw makes no cell of its own, and is not dropped."""
    found = same_distribution([(0,)] * 30 + [(1,)] * 20 + [(9,)], [(0,)] * 30 + [(1,)] * 20)
    assert (found.df, found.tokens) == (1, 101)


def test_swapped_sides_give_the_same() -> None:
    """Neither side is the reference."""
    rng = np.random.default_rng(1)
    one, other = draws(plain, rng), draws(greedy_bonus, rng)
    assert same_distribution(one, other) == same_distribution(other, one)


@pytest.mark.parametrize("one", [[], [(1, 2)] * 50])
def test_answers_that_do_not_vary_cannot_be_tested(one: Draws) -> None:
    """A single token everywhere tells of no distribution."""
    with pytest.raises(NotEnoughData):
        same_distribution(one, [(1, 2)] * 50)


Sampler = Callable[[Generator], NDArray[np.int64]]
"""Token ids `[SEEDS, TOKENS]`."""


def plain(rng: Generator) -> NDArray[np.int64]:
    """Plain sampling."""
    return rng.choice(len(TARGET), (SEEDS, TOKENS), p=TARGET)


def speculative(rng: Generator) -> NDArray[np.int64]:
    """Drafts accepted with min(1, p ÷ q), else redrawn from what the drafter says too rarely."""
    left = np.maximum(TARGET - DRAFTER, 0)
    return verified(rng, left / left.sum())


def no_residual(rng: Generator) -> NDArray[np.int64]:
    """A known fault: a refused draft is redrawn from the target itself."""
    return verified(rng, TARGET)


def lenient(rng: Generator) -> NDArray[np.int64]:
    """A known fault: drafts are accepted more easily than the target allows."""
    return verified(rng, TARGET, lenience=0.5)


def greedy_bonus(rng: Generator) -> NDArray[np.int64]:
    """A known fault: the token after the accepted drafts is the most probable one."""
    drawn = plain(rng)
    drawn[:, -1] = TARGET.argmax()
    return drawn


def verified(
    rng: Generator, redraw: NDArray[np.float64], lenience: float = 1.0
) -> NDArray[np.int64]:
    draft = rng.choice(len(DRAFTER), (SEEDS, TOKENS), p=DRAFTER)
    accepted = rng.random(draft.shape) * DRAFTER[draft] * lenience < TARGET[draft]
    return np.where(accepted, draft, rng.choice(len(TARGET), draft.shape, p=redraw))


def draws(sampler: Sampler, rng: Generator) -> Draws:
    return [tuple(row) for row in sampler(rng).tolist()]


def rejected(sampler: Sampler, runs: int) -> float:
    """Share of runs in which the sampler is told from plain sampling at 5 %."""
    rng = np.random.default_rng(20261130)
    tests = [same_distribution(draws(plain, rng), draws(sampler, rng)) for _ in range(runs)]
    return sum(test.p_value < 0.05 for test in tests) / runs


@pytest.mark.parametrize("sampler", [plain, speculative])
def test_a_right_sampler_is_not_caught(sampler: Sampler) -> None:
    """At 5 % about 15 of 300 runs; 27 or more have a chance of 0.2 %."""
    assert rejected(sampler, 300) < 27 / 300


@pytest.mark.parametrize("sampler", [no_residual, lenient, greedy_bonus])
def test_a_subtly_wrong_sampler_is_caught(sampler: Sampler) -> None:
    """1,000 answers of two tokens tell known faults from plain sampling in nine runs of ten."""
    assert rejected(sampler, 60) > 0.9
