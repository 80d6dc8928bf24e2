"""Estimates with intervals, and tests of samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 4000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, its interval at `LEVEL`, and how many units it rests on."""

    value: float
    low: float
    high: float
    units: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] n={self.units}"


@dataclass(frozen=True, slots=True)
class Sums:
    """Numerator and denominator of a pooled figure, `[units]` each: seconds and steps, say."""

    over: Sequence[float]
    under: Sequence[float]


def pooled(sums: Sums) -> float:
    """Σ numerators ÷ Σ denominators."""
    return float(np.sum(sums.over) / np.sum(sums.under))


def ratio(candidate: Sums, reference: Sums, seed: int = 0) -> Estimate:
    """Pooled figure of one server ÷ that of another on the same units.

    Percentile bootstrap over units: both servers' figures of a unit are drawn together.
    """
    a, b, c, d = (
        np.asarray(part, dtype=float)
        for part in (candidate.over, candidate.under, reference.over, reference.under)
    )
    rows = np.random.default_rng(seed).integers(0, len(a), (RESAMPLES, len(a)))
    drawn = (a[rows].sum(1) / b[rows].sum(1)) / (c[rows].sum(1) / d[rows].sum(1))
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    value = (a.sum() / b.sum()) / (c.sum() / d.sum())
    return Estimate(float(value), float(low), float(high), len(a))


def same_distribution(some: Mapping[Hashable, int], others: Mapping[Hashable, int]) -> float:
    """p-value of two samples' counts under one distribution; values too rare are one value.

    Chi-square test of homogeneity, at least 10 expected-or-so draws a value in both together.
    """
    from scipy.stats import chi2_contingency

    both = Counter(some) + Counter(others)
    common = [value for value, count in both.items() if count >= 20]
    rare = [value for value in both if value not in set(common)]
    table = [[count.get(v, 0) for v in common] for count in (some, others)]
    if rare:
        for row, count in zip(table, (some, others), strict=True):
            row.append(sum(count.get(v, 0) for v in rare))
    table_array = np.asarray(table)
    table_array = table_array[:, table_array.sum(0) > 0]
    if table_array.shape[1] < 2:
        return 1.0
    return float(chi2_contingency(table_array).pvalue)


def quantiles(values: ArrayLike) -> dict[str, float]:
    """Median, 90th percentile and maximum; empty without values."""
    array = np.asarray(values, dtype=float)
    if array.size == 0:
        return {}
    middle, high = np.quantile(array, [0.5, 0.9])
    return {"median": float(middle), "p90": float(high), "max": float(array.max())}
