"""The distributions that intervals and tests need."""

from __future__ import annotations

# scipy ships no types; this module is the only one that meets it, until scipy-stubs is installed
from scipy import stats  # type: ignore[import-untyped]


def t_half_width(level: float, df: float) -> float:
    """Standard errors on each side of a two-sided interval at `level`; `df` may be infinite."""
    return float(stats.t.ppf((1 + level) / 2, df))


def t_p_value(t: float, df: float) -> float:
    """Two-sided p-value of a t statistic; `df` may be infinite."""
    return float(2 * stats.t.sf(abs(t), df))


def chi_square_p_value(statistic: float, df: int) -> float:
    """Chance of a chi-square statistic as large as this one."""
    return float(stats.chi2.sf(statistic, df))


def even_split_p_value(wins: int, trials: int) -> float:
    """Two-sided p-value of `wins` of `trials` under an even chance; 1 without trials."""
    return float(stats.binomtest(wins, trials).pvalue) if trials > 0 else 1.0


def normal_half_width(level: float) -> float:
    """Standard deviations on each side of a two-sided interval at `level`."""
    return float(stats.norm.ppf((1 + level) / 2))


def binomial_bounds(trials: int, chance: float, level: float) -> tuple[int, int]:
    """Counts between which a binomial one lies with at least `level`, equal tails."""
    tail = (1 - level) / 2
    return int(stats.binom.ppf(tail, trials, chance)), int(stats.binom.isf(tail, trials, chance))
