"""Whether greedy answers are, token by token, those of plain decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ddtree_bench.columns import LOSSLESS
from ddtree_bench.config import Config
from ddtree_bench.records import RequestRecord
from ddtree_bench.store import MeasuredCell
from ddtree_bench.tables.rows import Value, frame_of

Ids = NDArray[np.int32]
Question = tuple[str, str, int, str]
"""Workload, prompt id, turn and hash of the rendered prompt."""


def first_difference(ids: Ids, reference: Ids) -> int | None:
    """Tokens before the first difference; None if there is none. A missing end is a difference."""
    common = min(len(ids), len(reference))
    differing = np.flatnonzero(ids[:common] != reference[:common])
    if len(differing) > 0:
        return int(differing[0])
    return None if len(ids) == len(reference) else common


@dataclass(slots=True)
class LosslessTable:
    """Collects sound cells in order; the baseline's first answer to a question is the reference."""

    config: Config
    _answers: list[tuple[str, Question, Ids]] = field(default_factory=list)

    def add_cell(self, measured: MeasuredCell) -> None:
        """Take the greedy answers with token ids of a cell that enters statistics."""
        for request in measured.requests:
            if request.sampling.temperature == 0 and request.output_ids is not None:
                ids = np.array(request.output_ids, dtype=np.int32)
                self._answers.append((request.cell.server, _question(request), ids))

    def frame(self) -> pd.DataFrame:
        """A row a server, also where nothing could be compared."""
        return frame_of(self._rows(), LOSSLESS)

    def _rows(self) -> Iterator[Mapping[str, Value]]:
        references: dict[Question, Ids] = {}
        for server, question, ids in self._answers:
            if server == self.config.analysis.baseline:
                references.setdefault(question, ids)
        found: dict[str, list[int | None]] = {server: [] for server in self.config.servers}
        for server, question, ids in self._answers:
            reference = references.get(question)
            if reference is not None and reference is not ids:
                found[server].append(first_difference(ids, reference))
        for server, places in found.items():
            differing = [place for place in places if place is not None]
            identical = len(places) - len(differing)
            yield {
                "server": server,
                "compared": len(places),
                "identical": identical,
                "share": identical / len(places) if places else None,
                "first_difference_median": float(np.median(differing)) if differing else None,
            }


def _question(request: RequestRecord) -> Question:
    return request.cell.workload, request.prompt_id, request.turn, request.prompt_sha256
