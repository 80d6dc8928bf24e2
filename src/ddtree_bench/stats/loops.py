"""Whether an answer runs in a circle: the same few tokens again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

LONGEST_PERIOD: Final = 32
"""Tokens; a loop of longer phrases is not looked for."""
LEAST_REPEATS: Final = 4
LEAST_TOKENS: Final = 24
"""What a list, a table or a row of dashes stays under; chosen before anything was measured."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A run of tokens that repeats itself: `tokens` of them, every `period` the same."""

    period: int
    tokens: int

    @property
    def repeats(self) -> float:
        """How often the phrase is there."""
        return self.tokens / self.period


def longest_loop(ids: Ids, least_repeats: int = 2, least_tokens: int = 0) -> Loop | None:
    """The loop that covers most tokens of `ids` `[n]`, the shorter period first; None without one.

    Args:
        ids: of the answer.
        least_repeats: a phrase that is there less often is no loop.
        least_tokens: nor is one that covers fewer.
    """
    best: Loop | None = None
    longest_period = min(LONGEST_PERIOD, len(ids) // least_repeats)
    for period in range(1, longest_period + 1):
        need = max((least_repeats - 1) * period, least_tokens - period)
        need = need if best is None else max(need, best.tokens - period + 1)
        same = ids[period:] == ids[:-period]
        if np.count_nonzero(same) < need:  # cheap, and settles nearly all periods of real text
            continue
        run = _longest_run(same)
        if run >= need:
            best = Loop(period, run + period)
    return best


def is_degenerate(ids: Ids) -> bool:
    """Whether the answer holds a loop long enough to count as a fault."""
    return longest_loop(ids, LEAST_REPEATS, LEAST_TOKENS) is not None


def _longest_run(same: NDArray[np.bool_]) -> int:
    """Length of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False]))))
    lengths = edges[1::2] - edges[::2]
    return int(lengths.max()) if len(lengths) > 0 else 0
