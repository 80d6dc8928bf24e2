"""At which load a speed-up is used up."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.interval import FloatArray


def crossing(concurrency: FloatArray, speedup: FloatArray) -> float | None:
    """The lowest concurrency at which the speed-up falls to 1; None if it does not fall to it.

    Both `[n]`, concurrency ascending. Between two measured levels the logarithm of the speed-up is
    taken as linear in that of the concurrency; beyond them nothing is said.

    Raises NotEnoughData with fewer than two levels.
    """
    if len(concurrency) < 2:
        raise NotEnoughData(len(concurrency), 2, "levels of concurrency")
    at, gain = np.log(concurrency), np.log(speedup)
    for (left, over), (right, under) in pairwise(zip(at, gain, strict=True)):
        if over > 0 >= under:
            return float(np.exp(left + (right - left) * over / (over - under)))
    return None
