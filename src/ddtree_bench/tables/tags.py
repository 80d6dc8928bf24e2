"""Speed and acceptance by tag of the prompts: language, domain, source, thinking and others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pandas as pd

from ddtree_bench.columns import TAGS
from ddtree_bench.config import CLASSES
from ddtree_bench.metrics import produced_tokens
from ddtree_bench.prompts import ARRIVED
from ddtree_bench.records import RequestRecord
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.tables.rows import Value, frame_of

LEFT_OUT = frozenset({ARRIVED})
"""Tags with another value for each request."""

Key = tuple[str, int, str, str]
"""Server, concurrency, tag and value."""


@dataclass(slots=True)
class _Sums:
    """Sums over the requests of one row."""

    requests: int = 0
    produced: int = 0
    steps: int = 0
    timed: int = 0
    log_tok_per_s: float = 0.0
    cut: int = 0

    def add(self, request: RequestRecord) -> None:
        self.requests += 1
        self.cut += request.finish_reason == "length"
        if request.spec is not None:
            self.produced += produced_tokens(request.spec)
            self.steps += request.spec.verify_steps
        tokens = request.completion_tokens
        if tokens is not None and tokens > 0 and request.end_s > 0:
            self.timed += 1
            self.log_tok_per_s += math.log(tokens / request.end_s)


@dataclass(slots=True)
class TagTable:
    """Collects sound cells of the five classes."""

    _sums: dict[Key, _Sums] = field(default_factory=dict)

    def add_cell(self, measured: MeasuredCell) -> None:
        """Take a cell that enters statistics; class `original` is left out."""
        cell = measured.cell
        if cell.workload_class not in CLASSES:
            return
        for request in measured.requests:
            for tag in sorted(request.tags.keys() - LEFT_OUT):
                key = (cell.cell.server, cell.cell.concurrency, tag, request.tags[tag])
                self._sums.setdefault(key, _Sums()).add(request)

    def frame(self) -> pd.DataFrame:
        """A row a server, concurrency, tag and value."""
        return frame_of(self._rows(), TAGS)

    def _rows(self) -> Iterator[Mapping[str, Value]]:
        for (server, concurrency, tag, value), sums in self._sums.items():
            yield {
                "server": server,
                "concurrency": concurrency,
                "tag": tag,
                "value": value,
                "n_requests": sums.requests,
                "acceptance_length": sums.produced / sums.steps if sums.steps > 0 else None,
                "tok_per_s": math.exp(sums.log_tok_per_s / sums.timed) if sums.timed > 0 else None,
                "length_share": sums.cut / sums.requests,
            }
