"""The concurrency from which a server no longer pays against the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from ddtree_bench.columns import CROSSOVER
from ddtree_bench.stats.crossover import crossing
from ddtree_bench.tables.comparisons import Curve
from ddtree_bench.tables.rows import Value, frame_of


def crossover_frame(curves: Iterable[Curve]) -> pd.DataFrame:
    """A row a server that was compared with the baseline at two concurrencies or more."""
    return frame_of((_row(curve) for curve in curves if len(curve.points) > 1), CROSSOVER)


def _row(curve: Curve) -> Mapping[str, Value]:
    levels, *ratios = (
        np.array(values, dtype=np.float64) for values in zip(*curve.points, strict=True)
    )
    speedup, *ends = ratios
    found = crossing(levels, speedup)
    low, high = (None if np.isnan(end).any() else _crossing(levels, end) for end in ends)
    return {
        "server": curve.server,
        "classes": ", ".join(curve.classes),
        "levels": len(levels),
        "lowest": int(levels[0]),
        "highest": int(levels[-1]),
        "crossover": found,
        "crossover_low": low,
        "crossover_high": high,
        "said": _said(speedup, levels, found),
    }


def _crossing(levels: np.ndarray, curve: np.ndarray) -> float | None:
    """Where the curve meets 1; the lowest level if it lies under 1 from the start."""
    found = crossing(levels, curve)
    return float(levels[0]) if found is None and curve[0] <= 1 else found


def _said(speedup: np.ndarray, levels: np.ndarray, found: float | None) -> str:
    if found is not None:
        return f"by the estimate pays up to about {found:.1f} in flight"
    if speedup[0] > 1:
        return f"by the estimate pays at all measured levels, up to {levels[-1]:.0f} in flight"
    return f"by the estimate does not pay at {levels[0]:.0f} in flight, the lowest level"
