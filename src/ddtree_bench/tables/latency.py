"""What a user waits for: percentiles of latency, and how many requests keep stated limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pandas as pd

from ddtree_bench.columns import GOODPUT, LATENCY, POOLED
from ddtree_bench.config import CLASSES, Limits
from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.percentile import percentile, percentile_interval
from ddtree_bench.stats.proportion import wilson
from ddtree_bench.tables.rows import Value, frame_of, grouped

PERCENTILES: Final[Mapping[str, tuple[float, ...]]] = {
    "ttft_s": (0.5, 0.9, 0.99),
    "tpot_s": (0.5, 0.9, 0.99),
    "burst_gap_s": (0.5, 0.9, 0.99),
    "end_s": (0.5, 0.9, 0.99),
    "tok_per_s": (0.5, 0.1, 0.01),
}
"""Shares by column of `requests`; a speed is bad where it is low."""

_QUESTION = ["workload", "prompt_id", "turn"]


def latency_frame(requests: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Percentiles of the requests of sound cells, by class and for the five classes together."""
    five = requests[requests["workload_class"].isin(CLASSES)]
    both = [five.assign(workload_class=POOLED), five]
    groups = [
        group
        for frame in both
        for group in grouped(frame, ["server", "workload_class", "concurrency"]).items()
    ]
    rows = (_rows(key, group, confidence) for key, group in groups)
    return frame_of((row for some in rows for row in some), LATENCY)


def _rows(
    key: tuple[str, str, int], group: pd.DataFrame, confidence: float
) -> Iterator[Mapping[str, Value]]:
    server, workload_class, concurrency = key
    questions = group.groupby(_QUESTION).ngroup().to_numpy()
    for metric, shares in PERCENTILES.items():
        values = group[metric].to_numpy(dtype=np.float64, na_value=np.nan)
        known = ~np.isnan(values)
        distinct = len(np.unique(questions[known]))
        for share in shares:
            yield {
                "server": server,
                "workload_class": workload_class,
                "concurrency": concurrency,
                "metric": metric,
                "share": share,
                "n": int(known.sum()),
                "n_questions": distinct,
                **percentile_columns(values[known], share, confidence, distinct),
            }


def percentile_columns(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    share: float,
    confidence: float,
    questions: int,
) -> dict[str, Value]:
    """A percentile with its interval, as columns; without them, why there is none."""
    try:
        interval = percentile_interval(values, share, confidence, questions)
    except NotEnoughData as error:
        return {"value": None, "low": None, "high": None, "note": str(error)}
    value = percentile(values, share)
    return {"value": value, "low": interval.low, "high": interval.high, "note": ""}


def goodput_frame(
    requests: pd.DataFrame, cells: pd.DataFrame, limits: Limits, confidence: float
) -> pd.DataFrame:
    """Requests within the limits a second; no row if no limit is stated."""
    stated = limits.stated
    five = requests[requests["workload_class"].isin(CLASSES)]
    seconds = cells[cells["workload_class"].isin(CLASSES)]
    spans = seconds.groupby(["server", "concurrency"])["seconds"].sum()
    groups = grouped(five, ["server", "concurrency"]) if stated else {}
    return frame_of(
        (_goodput(key, group, stated, spans[key], confidence) for key, group in groups.items()),
        GOODPUT,
    )


def _goodput(
    key: tuple[str, int],
    group: pd.DataFrame,
    limits: Mapping[str, float],
    seconds: float,
    confidence: float,
) -> Mapping[str, Value]:
    # a time that was not measured keeps no limit
    kept = np.logical_and.reduce(
        [(group[name] <= limit).fillna(False) for name, limit in limits.items()]
    )
    questions = len(group[_QUESTION].drop_duplicates())
    share = float(kept.mean())
    interval = wilson(round(share * questions), questions, confidence)
    return {
        "server": key[0],
        "concurrency": key[1],
        "n": len(group),
        "n_questions": questions,
        "within": int(kept.sum()),
        "share": share,
        "share_low": min(interval.low, share),
        "share_high": max(interval.high, share),
        "requests_per_s": len(group) / seconds if seconds > 0 else None,
        "goodput_per_s": int(kept.sum()) / seconds if seconds > 0 else None,
    }
