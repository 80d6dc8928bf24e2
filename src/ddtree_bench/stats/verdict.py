"""From intervals to a verdict: one rule, no judgement.

interval above 1, p < α, low end beyond the margin   → faster
interval above 1, p < α, otherwise                   → faster, margin not shown
(the same below 1                                    → slower …)
90 % interval within the margin on both sides of 1   → equivalent
anything else, or no interval                        → undecided
nobody planned the comparison                        → not tested

Whatever the interval says, a candidate whose answers are faulty is `faulty`: it keeps its numbers,
not its rank.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ddtree_bench.stats.compare import Effect, holm
from ddtree_bench.stats.interval import FloatArray, Interval
from ddtree_bench.vocabulary import Vocabulary

FAR: Final = 20
"""More than so many times as many prompts or launches is no advice."""


class Verdict(Vocabulary):
    """What a comparison supports."""

    FASTER = "faster", "faster by more than the margin"
    FASTER_BELOW_MARGIN = "faster_below_margin", "faster, but not shown to exceed the margin"
    EQUIVALENT = "equivalent", "no difference beyond the margin"
    SLOWER_BELOW_MARGIN = "slower_below_margin", "slower, but not shown to exceed the margin"
    SLOWER = "slower", "slower by more than the margin"
    UNDECIDED = "undecided", "undecided"
    NOT_TESTED = "not_tested", "not tested, as the configuration plans others"
    FAULTY = "faulty", "its answers are faulty, so its speed counts for nothing"


@dataclass(frozen=True, slots=True)
class Rule:
    """When a difference counts."""

    margin: float
    """Smallest relative difference worth acting on."""
    confidence: float
    """Level of the interval; α is what it leaves."""

    @property
    def alpha(self) -> float:
        """Error rate of the tests."""
        return 1 - self.confidence

    @property
    def equivalence_level(self) -> float:
        """Level of the interval that two one-sided tests at α correspond to."""
        return 1 - 2 * self.alpha


def judge(interval: Interval, narrow: Interval, p_adjusted: float, rule: Rule) -> Verdict:
    """The verdict on a ratio (above 1 is faster).

    Args:
        interval: at `rule.confidence`.
        narrow: at `rule.equivalence_level`.
        p_adjusted: corrected for all comparisons of its family.
        rule: margin and level.
    """
    beyond = 1 + rule.margin
    if p_adjusted < rule.alpha:
        if interval.low > 1:
            return Verdict.FASTER if interval.low > beyond else Verdict.FASTER_BELOW_MARGIN
        if interval.high < 1:
            return Verdict.SLOWER if interval.high < 1 / beyond else Verdict.SLOWER_BELOW_MARGIN
    if narrow.low > 1 / beyond and narrow.high < beyond:
        return Verdict.EQUIVALENT
    return Verdict.UNDECIDED


def verdict_of(effect: Effect, p_adjusted: float, rule: Rule) -> Verdict:
    """The verdict on an estimated speed-up."""
    narrow = effect.interval(rule.equivalence_level)
    return judge(effect.interval(rule.confidence), narrow, p_adjusted, rule)


class Size(NamedTuple):
    """Of a run, as multiples of what was measured."""

    launches: float = 1
    prompts: float = 1


MEASURED: Final = Size()


class Family:
    """Effects that are tested together: Holm's correction holds for all of them."""

    def __init__(self, effects: Sequence[Effect], rule: Rule) -> None:
        """Take the effects of all planned tests."""
        self._effects = effects
        self._rule = rule
        self._adjusted: dict[Size, FloatArray] = {}

    def p_adjusted(self, place: int, size: Size = MEASURED) -> float:
        """The p-value of the effect at this place, adjusted for all of them."""
        if size not in self._adjusted:
            values = [effect.resized(*size).p_value() for effect in self._effects]
            self._adjusted[size] = holm(np.array(values))
        return float(self._adjusted[size][place])

    def verdict(self, place: int, size: Size = MEASURED) -> Verdict:
        """The verdict on one of them, if the run had this size and every estimate stayed."""
        effect = self._effects[place].resized(*size)
        return verdict_of(effect, self.p_adjusted(place, size), self._rule)

    def what_would_decide(self, place: int) -> str:
        """Which of prompts or launches limits an undecided effect, and how many would do.

        The rule itself is asked, for larger and larger runs with the estimates and components of
        variance of this one.
        """
        effect = self._effects[place]
        if effect.prompt_variance >= effect.launch_variance:
            times = [Size(prompts=each) for each in range(2, FAR + 1)]
            enough = self._first(place, times)
            if enough is None:
                return f"limited by prompts, more than {FAR} times as many would be needed"
            return f"limited by prompts, about {enough.prompts:g} times as many would decide"
        have = int(min(effect.launches))
        most = FAR * have
        more = [Size(launches=number / have) for number in range(have + 1, most + 1)]
        enough = self._first(place, more)
        if enough is None:
            return f"limited by launches, more than {most} would be needed instead of {have}"
        needed = round(enough.launches * have)
        return f"limited by launches, about {needed} instead of {have} would decide"

    def _first(self, place: int, sizes: Sequence[Size]) -> Size | None:
        """The smallest of these growing sizes that decides; all larger ones decide, too."""
        found = bisect_left(
            sizes, True, key=lambda size: self.verdict(place, size) is not Verdict.UNDECIDED
        )
        return sizes[found] if found < len(sizes) else None
