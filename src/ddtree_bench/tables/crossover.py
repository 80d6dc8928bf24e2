"""The concurrency from which a server no longer pays against the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from ddtree_bench.columns import CROSSOVER, POOLED
from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.crossover import crossing
from ddtree_bench.tables.rows import Value, frame_of, grouped


def crossover_frame(comparisons: pd.DataFrame) -> pd.DataFrame:
    """A row a server, where it was compared with the baseline at two concurrencies or more."""
    pooled = comparisons[
        (comparisons["relation"] == "baseline") & (comparisons["workload_class"] == POOLED)
    ]
    known = pooled[pooled["speedup"].notna()].sort_values("concurrency")
    groups = grouped(known, ["candidate"])
    rows = (_row(server, rows) for (server,), rows in groups.items() if len(rows) > 1)
    return frame_of(rows, CROSSOVER)


def _row(server: str, rows: pd.DataFrame) -> Mapping[str, Value]:
    levels = rows["concurrency"].to_numpy(dtype=np.float64)
    curves = dict(_curves(rows))
    found = crossing(levels, curves["speedup"])
    ends = {
        name: _crossing(levels, curves[f"speedup_{name}"]) if f"speedup_{name}" in curves else None
        for name in ("low", "high")
    }
    return {
        "server": server,
        "levels": len(rows),
        "lowest": int(levels[0]),
        "highest": int(levels[-1]),
        "crossover": found,
        "crossover_low": ends["low"],
        "crossover_high": ends["high"],
        "said": _said(curves["speedup"], levels, found),
    }


def _curves(rows: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    """The speed-up and the ends of its interval by concurrency, each where it is whole."""
    for name in ("speedup", "speedup_low", "speedup_high"):
        values = rows[name].to_numpy(dtype=np.float64, na_value=np.nan)
        if not np.isnan(values).any():
            yield name, values


def _crossing(levels: np.ndarray, curve: np.ndarray) -> float | None:
    """Where the curve meets 1; the lowest level if it lies under 1 from the start."""
    try:
        found = crossing(levels, curve)
    except NotEnoughData:
        return None
    return float(levels[0]) if found is None and curve[0] <= 1 else found


def _said(speedup: np.ndarray, levels: np.ndarray, found: float | None) -> str:
    if found is not None:
        return f"by the estimate pays up to about {found:.1f} in flight"
    if speedup[0] > 1:
        return f"by the estimate pays at all measured levels, up to {levels[-1]:.0f} in flight"
    return f"by the estimate does not pay at {levels[0]:.0f} in flight, the lowest level"
