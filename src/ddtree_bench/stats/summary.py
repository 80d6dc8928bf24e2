"""Values pooled so that a prompt or a class weighs the same whatever its size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.interval import FloatArray


def geometric_mean(values: FloatArray) -> float:
    """The exponential of the mean logarithm of `values` `[n]`, all above 0.

    Raises NotEnoughData without values, ValueError if one is not above 0.
    """
    if len(values) == 0:
        raise NotEnoughData(0, 1, "values")
    if not np.all(values > 0):
        raise ValueError(f"a geometric mean needs values above 0, got {np.min(values)}")
    return float(np.exp(np.mean(np.log(values))))


def class_mean(per_prompt: Sequence[FloatArray]) -> float:
    """Mean over classes of the mean over prompts; each class weighs the same.

    `per_prompt`: an array `[n_c]` a class. Raises NotEnoughData if there is no class or an empty
    one.
    """
    if not per_prompt or any(len(values) == 0 for values in per_prompt):
        raise NotEnoughData(0, 1, "prompts of a class")
    return float(np.mean([np.mean(values) for values in per_prompt]))
