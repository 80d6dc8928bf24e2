"""The distributions that intervals and tests need."""

from __future__ import annotations

import math

# scipy ships no types; this module is the only one that meets it, until scipy-stubs is installed.
# Special functions take a hundredth of the time of distributions, which a large run notices.
from scipy import special, stats  # type: ignore[import-untyped]


def t_half_width(level: float, df: float) -> float:
    """Standard errors on each side of a two-sided interval at `level`; `df` may be infinite."""
    if math.isinf(df):
        return normal_half_width(level)
    return float(special.stdtrit(df, (1 + level) / 2))


def t_p_value(t: float, df: float) -> float:
    """Two-sided p-value of a t statistic; `df` may be infinite."""
    tail = special.ndtr(-abs(t)) if math.isinf(df) else special.stdtr(df, -abs(t))
    return float(2 * tail)


def chi_square_p_value(statistic: float, df: int) -> float:
    """Chance of a chi-square statistic as large as this one."""
    return float(special.chdtrc(df, statistic))


def even_split_p_value(wins: int, trials: int) -> float:
    """Two-sided p-value of `wins` of `trials` under an even chance; 1 without trials."""
    rarer = min(wins, trials - wins)
    return min(1.0, 2 * float(special.bdtr(rarer, trials, 0.5))) if trials > 0 else 1.0


def normal_half_width(level: float) -> float:
    """Standard deviations on each side of a two-sided interval at `level`."""
    return float(special.ndtri((1 + level) / 2))


def binomial_bounds(trials: int, chance: float, level: float) -> tuple[int, int]:
    """Counts between which a binomial one lies with at least `level`, equal tails."""
    tail = (1 - level) / 2
    return int(stats.binom.ppf(tail, trials, chance)), int(stats.binom.isf(tail, trials, chance))
