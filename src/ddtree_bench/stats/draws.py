"""Whether two servers draw their tokens from one distribution, from many answers to one prompt.

Answers that share their first tokens share a prefix, and at one prefix a right sampler has one
distribution of the next token. So the next tokens that both sides drew there form a table of two
rows, tested by Pearson's chi-square for homogeneity. Given how often each prefix was reached, the
tables of all prefixes are independent, and their statistics and degrees of freedom add.

Rare tokens are put together until each cell expects at least `LEAST_EXPECTED` draws; which ones, is
decided by both sides' counts together, which say nothing of a difference between them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.distributions import chi_square_p_value
from ddtree_bench.stats.interval import IntArray

Draw = Sequence[int]
"""Token ids of one answer."""

LEAST_EXPECTED: Final = 5.0
"""Draws that a cell of a table must expect; below it chi-square's distribution is another one."""


@dataclass(frozen=True, slots=True)
class Homogeneity:
    """Chi-square statistic of two samples, summed over the prefixes that could be tested."""

    statistic: float
    df: int
    prefixes: int
    """Prefixes with at least two tokens to tell apart."""
    tokens: int
    """Draws at those prefixes, both sides together."""

    @property
    def p_value(self) -> float:
        """Chance of so large a statistic if both sides draw from one distribution."""
        return chi_square_p_value(self.statistic, self.df)


def same_distribution(one: Sequence[Draw], other: Sequence[Draw]) -> Homogeneity:
    """The test of two samples of answers to one prompt, drawn independently.

    Answers of one side may differ in length by their stop token only, not by their limit.

    Raises NotEnoughData if no prefix was reached often enough by both sides to tell two tokens
    apart, as when neither side's answers vary.
    """
    tables = [table for counts in _next_tokens(one, other) if (table := _table(*counts)).size > 0]
    if not tables:
        raise NotEnoughData(0, 1, "prefixes after which both sides drew several tokens")
    return Homogeneity(
        statistic=float(sum(_pearson(table) for table in tables)),
        df=sum(table.shape[1] - 1 for table in tables),
        prefixes=len(tables),
        tokens=int(sum(table.sum() for table in tables)),
    )


def _next_tokens(
    one: Sequence[Draw], other: Sequence[Draw]
) -> Iterator[tuple[Counter[int], Counter[int]]]:
    """Counts of the next token on each side, at every prefix that both sides reached."""
    sides = _by_prefix(one), _by_prefix(other)
    for prefix in sorted(sides[0].keys() & sides[1].keys()):
        yield sides[0][prefix], sides[1][prefix]


def _by_prefix(draws: Sequence[Draw]) -> dict[tuple[int, ...], Counter[int]]:
    counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for draw in draws:
        for place, token in enumerate(draw):
            counts[tuple(draw[:place])][token] += 1
    return counts


def _table(one: Counter[int], other: Counter[int]) -> IntArray:
    """Counts `[2, K]` of K categories that each expect enough; `[2, 0]` if there are not two."""
    pooled = one + other
    scarcer = min(one.total(), other.total()) / pooled.total()
    by_count = sorted(pooled, key=lambda token: (-pooled[token], token))
    common = [token for token in by_count if pooled[token] * scarcer >= LEAST_EXPECTED]
    table = np.array([[side[token] for token in common] for side in (one, other)], dtype=np.int64)
    rest = np.array([one.total(), other.total()]) - table.sum(axis=1)
    if rest.sum() * scarcer >= LEAST_EXPECTED:
        table = np.column_stack([table, rest])
    elif common:  # too few for a category of their own: with the rarest
        table[:, -1] += rest
    return table if table.shape[1] > 1 else table[:, :0]


def _pearson(table: IntArray) -> float:
    """Σ (observed − expected)² ÷ expected over a table `[2, K]` without empty columns."""
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return float(np.sum((table - expected) ** 2 / expected))
