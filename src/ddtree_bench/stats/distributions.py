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


def even_split_p_value(wins: int, trials: int) -> float:
    """Two-sided p-value of `wins` of `trials` under an even chance; 1 without trials."""
    return float(stats.binomtest(wins, trials).pvalue) if trials > 0 else 1.0
