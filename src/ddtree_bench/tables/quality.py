"""Whether answers are right, and whether a server's are so less often than the baseline's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pandas as pd

from ddtree_bench.columns import QUALITY
from ddtree_bench.config import Config
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.stats.proportion import Pairs, mcnemar_p_value, paired_difference, wilson
from ddtree_bench.tables.rows import Value, frame_of

Key = tuple[str, str, str]
"""Server, workload class and check kind."""
Question = tuple[str, str]
"""Workload and prompt."""


@dataclass(slots=True)
class QualityTable:
    """Collects sound cells in order; a prompt counts once, by the first pass over it.

    Repeats and launches of a greedy server give the same answers again: counted, they would make
    intervals narrower than they are. A tool loop is right if every checked reply of it is.
    """

    config: Config
    _right: dict[Key, dict[Question, bool]] = field(default_factory=dict)

    def add_cell(self, measured: MeasuredCell) -> None:
        """Take the checked answers of a cell that enters statistics."""
        here: dict[Key, dict[Question, bool]] = {}
        cell = measured.cell
        for request in measured.requests:
            if request.check is None:
                continue
            key = (cell.cell.server, cell.workload_class, request.check.kind)
            answers = here.setdefault(key, {})
            question = (cell.cell.workload, request.prompt_id)
            answers[question] = answers.get(question, True) and request.check.valid
        for key, answers in here.items():
            # what was taken before stays
            self._right[key] = {**answers, **self._right.get(key, {})}

    def frame(self) -> pd.DataFrame:
        """A row a server, class and check kind with an answer."""
        return frame_of(self._rows(), QUALITY)

    def _rows(self) -> Iterator[Mapping[str, Value]]:
        level, baseline = self.config.analysis.confidence, self.config.analysis.baseline
        for (server, workload_class, kind), answers in self._right.items():
            interval = wilson(sum(answers.values()), len(answers), level)
            of_baseline = self._right.get((baseline, workload_class, kind), {})
            others = {} if server == baseline else of_baseline
            yield {
                "server": server,
                "workload_class": workload_class,
                "check_kind": kind,
                "n": len(answers),
                "valid": sum(answers.values()),
                "share": sum(answers.values()) / len(answers),
                "share_low": interval.low,
                "share_high": interval.high,
                **_difference(_pairs(answers, others), level),
            }


def _pairs(answers: Mapping[Question, bool], others: Mapping[Question, bool]) -> Pairs:
    counts = {(a, b): 0 for a in (True, False) for b in (True, False)}
    for question in answers.keys() & others.keys():
        counts[answers[question], others[question]] += 1
    return Pairs(
        *(counts[key] for key in ((True, True), (True, False), (False, True), (False,) * 2))
    )


def _difference(pairs: Pairs, level: float) -> dict[str, Value]:
    if pairs.n == 0:
        names = ("difference", "difference_low", "difference_high", "mcnemar_p")
        return {"pairs": 0, **dict.fromkeys(names)}
    interval = paired_difference(pairs, level)
    return {
        "pairs": pairs.n,
        "difference": pairs.difference,
        "difference_low": interval.low,
        "difference_high": interval.high,
        "mcnemar_p": mcnemar_p_value(pairs),
    }
