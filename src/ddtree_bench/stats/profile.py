"""What a tree of another budget would yield and cost, from trees and widths that were measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.interval import FloatArray, IntArray


def acceptance_by_budget(accepted_by_node: IntArray, steps: int) -> FloatArray:
    """Acceptance length of budgets 0, 1, …, `[B + 1]`: 1 + Σ accepted of the first b ÷ steps.

    `accepted_by_node` `[B]`: accepted nodes that were node n + 1 in the order in which trees grew.
    The tree of a smaller budget is the beginning of a larger one, and a node on an accepted path
    comes after its parent, so that the smaller tree accepts just those of its nodes. Its steps
    would begin at other places of the text; those of the larger one stand for them.

    Raises NotEnoughData without steps.
    """
    if steps == 0:
        raise NotEnoughData(0, 1, "verify steps")
    sums = np.concatenate(([0], np.cumsum(accepted_by_node)))
    acceptance: FloatArray = 1 + sums / steps
    return acceptance


def cost_between(widths: Sequence[int], seconds: Sequence[float], wanted: IntArray) -> FloatArray:
    """Seconds of a step at `wanted` widths `[W]`, linear between measured ones, NaN beyond them.

    Several seconds at one width are averaged. Raises NotEnoughData with fewer than two widths.
    """
    known = np.unique(widths)
    if len(known) < 2:
        raise NotEnoughData(len(known), 2, "widths of a step")
    times = np.array(seconds)
    means = [float(times[np.array(widths) == width].mean()) for width in known]
    between: FloatArray = np.interp(wanted, known, means, left=np.nan, right=np.nan)
    return between
