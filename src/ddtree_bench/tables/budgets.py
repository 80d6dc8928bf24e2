"""The table of budgets: what the profile of a run predicts of budgets that it did not measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from ddtree_bench.columns import BUDGETS
from ddtree_bench.config import Config
from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.interval import FloatArray, IntArray
from ddtree_bench.stats.profile import acceptance_by_budget, cost_between
from ddtree_bench.tables.rows import Value, frame_of

Grown = Mapping[str, tuple[IntArray, int]]
"""Accepted nodes in the order in which trees grew `[B]`, and verify steps, by server."""


def budget_frame(grown: Grown, cost: pd.DataFrame, config: Config) -> pd.DataFrame:
    """A row a tree server and budget; none where the engine tells too little."""
    costs = cost.set_index("server")
    return frame_of(
        (
            row
            for server, (accepted, steps) in grown.items()
            if {server, config.analysis.baseline} <= set(costs.index)
            for row in _rows(server, acceptance_by_budget(accepted, steps), costs, config)
        ),
        BUDGETS,
    )


def _rows(
    server: str, acceptance: FloatArray, costs: pd.DataFrame, config: Config
) -> Iterator[Mapping[str, Value]]:
    try:
        verifying_s = _verifying_s(server, costs, config, len(acceptance))
    except NotEnoughData:
        return
    seconds = float(costs["draft_time_s"][server]) + verifying_s
    plain_s = float(costs["step_time_s"][config.analysis.baseline])
    for budget in range(1, len(acceptance)):
        if np.isnan(seconds[budget]):
            continue
        yield {
            "server": server,
            "budget": budget,
            "acceptance_length": float(acceptance[budget]),
            "step_time_s": float(seconds[budget]),
            "predicted_speedup": float(acceptance[budget] * plain_s / seconds[budget]),
        }


def _verifying_s(server: str, costs: pd.DataFrame, config: Config, budgets: int) -> FloatArray:
    """Seconds of a step without its drafting for so many budgets from 0, `[budgets]`.

    From all servers of the same model that tell how long they draft, and plain decoding, which
    drafts nothing.
    """
    model = config.servers[server].model
    alike = costs[[config.servers[name].model == model for name in costs.index]]
    drafting_s = alike["draft_time_s"].mask(alike["algorithm"] == "AR", 0.0)
    rest_s = (alike["step_time_s"] - drafting_s)[alike["verify_width"].notna()].dropna()
    widths = alike.loc[rest_s.index, "verify_width"].astype(int)
    return cost_between(widths.tolist(), rest_s.tolist(), np.arange(budgets) + 1)
