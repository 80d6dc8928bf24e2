"""From intervals to a verdict: one rule, no judgement.

interval above 1, p < α, low end beyond the margin   → faster
interval above 1, p < α, otherwise                   → faster, margin not shown
(the same below 1                                    → slower …)
90 % interval within the margin on both sides of 1   → equivalent
anything else, or no interval                        → undecided

Whatever the interval says, a candidate whose answers are faulty is `faulty`: it keeps its numbers,
not its rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddtree_bench.stats.compare import Effect
from ddtree_bench.stats.distributions import t_half_width
from ddtree_bench.stats.interval import Interval
from ddtree_bench.vocabulary import Vocabulary

FAR = 20
"""More than so many times as many prompts or launches is no advice."""


class Verdict(Vocabulary):
    """What a comparison supports."""

    FASTER = "faster", "faster by more than the margin"
    FASTER_BELOW_MARGIN = "faster_below_margin", "faster, but not shown to exceed the margin"
    EQUIVALENT = "equivalent", "no difference beyond the margin"
    SLOWER_BELOW_MARGIN = "slower_below_margin", "slower, but not shown to exceed the margin"
    SLOWER = "slower", "slower by more than the margin"
    UNDECIDED = "undecided", "undecided"
    FAULTY = "faulty", "its answers are faulty, so its speed counts for nothing"


@dataclass(frozen=True, slots=True)
class Rule:
    """When a difference counts."""

    margin: float
    """Smallest relative difference worth acting on."""
    confidence: float
    """Level of the interval; α is what it leaves."""
    floor: float | None = None
    """A/A floor: largest ratio between two launches of the same server; None if unknown."""

    @property
    def alpha(self) -> float:
        """Error rate of the tests."""
        return 1 - self.confidence

    @property
    def equivalence_level(self) -> float:
        """Level of the interval that two one-sided tests at α correspond to."""
        return 1 - 2 * self.alpha

    @property
    def excess(self) -> float:
        """What a difference must exceed: the margin, and what launches of one server differ by."""
        return self.margin if self.floor is None else max(self.margin, self.floor - 1)


def judge(interval: Interval, narrow: Interval, p_adjusted: float, rule: Rule) -> Verdict:
    """The verdict on a ratio (above 1 is faster).

    Args:
        interval: at `rule.confidence`.
        narrow: at `rule.equivalence_level`.
        p_adjusted: corrected for all comparisons of its family.
        rule: margin, floor and level.

    The floor makes it harder to be faster, never easier to be equivalent: noise is no evidence of
    equality, so that only the margin counts there.
    """
    upper, equal = 1 + rule.excess, 1 + rule.margin
    if p_adjusted < rule.alpha:
        if interval.low > 1:
            return Verdict.FASTER if interval.low > upper else Verdict.FASTER_BELOW_MARGIN
        if interval.high < 1:
            return Verdict.SLOWER if interval.high < 1 / upper else Verdict.SLOWER_BELOW_MARGIN
    if narrow.low > 1 / equal and narrow.high < equal:
        return Verdict.EQUIVALENT
    return Verdict.UNDECIDED


def verdict_of(effect: Effect, p_adjusted: float, rule: Rule) -> Verdict:
    """The verdict on an estimated speed-up."""
    narrow = effect.interval(rule.equivalence_level)
    return judge(effect.interval(rule.confidence), narrow, p_adjusted, rule)


def what_would_decide(effect: Effect, rule: Rule) -> str:
    """Which of prompts or launches limits an undecided comparison, and roughly how many would do.

    The target is the standard error at which either the difference from 1 or its being within the
    margin would show, should the estimate stay where it is and the degrees of freedom too.
    """
    distance = max(abs(effect.log_value), math.log1p(rule.margin) - abs(effect.log_value))
    allowed = (distance / t_half_width(rule.confidence, effect.df)) ** 2
    prompts = _needed(effect.n_prompts, effect.prompt_variance, allowed - effect.launch_variance)
    launches = _needed(effect.n_launches, effect.launch_variance, allowed - effect.prompt_variance)
    if effect.prompt_variance >= effect.launch_variance:
        return _advice("prompts", effect.n_prompts, prompts)
    return _advice("launches", effect.n_launches, launches)


def _needed(have: int, variance: float, allowed: float) -> int | None:
    """How many would bring this part of the variance to `allowed`; None if no number is near."""
    if allowed <= 0 or variance / allowed > FAR:
        return None
    return max(have + 1, math.ceil(have * variance / allowed))


def _advice(what: str, have: int, needed: int | None) -> str:
    if needed is None:
        return f"limited by {what}, more of them alone would not decide soon"
    return f"limited by {what}, about {needed} instead of {have} would decide"
