"""What a user waits for where requests arrive by themselves: from the time due, and of service.

Under load a server may be quick with a request that it has left waiting for long. In an open loop
nothing waits for the server to be free, so the time from when a request was due tells both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd

from ddtree_bench.columns import ARRIVALS
from ddtree_bench.metrics import derive
from ddtree_bench.records import RequestRecord
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.tables.latency import percentile_columns
from ddtree_bench.tables.rows import Value, frame_of

SHARES: Final = (0.5, 0.9, 0.99)
METRICS: Final = ("wait_s", "ttft_s", "ttft_due_s", "end_s", "end_due_s")

Key = tuple[str, str, float]
"""Server, workload and rate of arrivals."""


@dataclass(slots=True)
class ArrivalTable:
    """Collects the sound cells of open loops."""

    confidence: float
    _requests: dict[Key, list[RequestRecord]] = field(default_factory=dict)
    _seconds: dict[Key, float] = field(default_factory=dict)

    def add_cell(self, measured: MeasuredCell) -> None:
        """Take a cell; one of a closed loop is left out."""
        cell, rate = measured.cell.cell, measured.cell.cell.arrivals_per_s
        if rate is None:
            return
        key = (cell.server, cell.workload, rate)
        self._requests.setdefault(key, []).extend(measured.requests)
        self._seconds[key] = self._seconds.get(key, 0.0) + _span_s(measured.requests)

    def frame(self) -> pd.DataFrame:
        """A row for each percentile of each time."""
        return frame_of(self._rows(), ARRIVALS)

    def _rows(self) -> Iterator[Mapping[str, Value]]:
        for (server, workload, rate), requests in self._requests.items():
            seconds = self._seconds[server, workload, rate]
            times = [_times(request) for request in requests]
            asked = [f"{request.prompt_id}/{request.turn}" for request in requests]
            for metric in METRICS:
                values = np.array([row[metric] for row in times], dtype=np.float64)
                known = ~np.isnan(values)
                questions = len(set(np.array(asked)[known]))
                for share in SHARES:
                    yield {
                        "server": server,
                        "workload": workload,
                        "arrivals_per_s": rate,
                        "served_per_s": len(requests) / seconds if seconds > 0 else None,
                        "metric": metric,
                        "share": share,
                        "n": int(known.sum()),
                        "n_questions": questions,
                        **percentile_columns(values[known], share, self.confidence, questions),
                    }


def _times(request: RequestRecord) -> dict[str, float | None]:
    ttft_s = derive(request, plain=False).ttft_s
    return {
        "wait_s": request.wait_s,
        "ttft_s": ttft_s,
        "ttft_due_s": None if ttft_s is None else request.wait_s + ttft_s,
        "end_s": request.end_s,
        "end_due_s": request.wait_s + request.end_s,
    }


def _span_s(requests: tuple[RequestRecord, ...]) -> float:
    """Seconds from the first request to the last answer's end."""
    ends = [request.sent_unix_s + request.end_s for request in requests]
    return max(ends) - min(request.sent_unix_s for request in requests)
