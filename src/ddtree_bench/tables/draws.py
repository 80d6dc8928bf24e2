"""Whether servers draw their tokens from plain decoding's distribution, at a temperature above 0.

Answers drawn many times to each prompt are tested against the baseline's (`stats.draws`), prompt by
prompt and over all prompts of a workload; Holm's correction is over all those tests of a run. The
baseline's own row tests the first half of its draws against the second: what a right sampler looks
like. Where answers never vary, on neither side, the server does not sample, which is no verdict on
how it would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from ddtree_bench.columns import DRAWS, POOLED
from ddtree_bench.config import Config
from ddtree_bench.errors import NotEnoughData
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.stats.compare import holm
from ddtree_bench.stats.draws import Draw, Homogeneity, same_distribution
from ddtree_bench.tables.rows import Value, frame_of
from ddtree_bench.vocabulary import Vocabulary

Question = tuple[str, str]
"""Prompt id and hash of the rendered prompt."""


class Sampler(Vocabulary):
    """What the draws of a server tell of its sampler."""

    SAME = "same", "no difference from the baseline's distribution was found"
    DIFFERS = "differs", "its tokens come from another distribution than the baseline's"
    NO_SAMPLING = "does not sample", "it gives one answer to each prompt, whatever the seed"
    NOT_COMPARED = "not compared", "there was nothing to compare"


@dataclass(frozen=True, slots=True)
class Sides:
    """A server's draws of one prompt and those that they are compared with."""

    own: Sequence[Draw]
    reference: Sequence[Draw]

    @property
    def distinct(self) -> tuple[int, int]:
        """Different answers on each side."""
        return len(set(self.own)), len(set(self.reference))


@dataclass(frozen=True, slots=True)
class Tested:
    """One row before the correction for many tests."""

    server: str
    workload: str
    prompt_id: str
    draws: tuple[int, int]
    """On each side, the server's first."""
    distinct: tuple[int, int]
    found: Homogeneity | None = None
    verdict: Sampler = Sampler.SAME
    detail: str = ""


@dataclass(slots=True)
class DrawTable:
    """Collects the sound cells of workloads with `draws`."""

    config: Config
    _draws: dict[str, dict[str, dict[Question, list[Draw]]]] = field(default_factory=dict)
    """Token ids by workload, server and question."""

    def add_cell(self, measured: MeasuredCell) -> None:
        """Take a cell's first answers to its prompts."""
        cell = measured.cell.cell
        servers = self._draws.setdefault(cell.workload, {})
        for request in measured.requests:
            if request.turn == 0 and request.output_ids is not None:
                question = (request.prompt_id, request.prompt_sha256)
                drawn = servers.setdefault(cell.server, {}).setdefault(question, [])
                drawn.append(request.output_ids)

    def frame(self) -> pd.DataFrame:
        """A row a server, workload and prompt, and one for all prompts."""
        tested = [row for workload in self._draws for row in self._tested(workload)]
        p_values = np.array([row.found.p_value for row in tested if row.found is not None])
        adjusted = iter(holm(p_values).tolist())
        alpha = 1 - self.config.analysis.confidence
        rows = ((row, None if row.found is None else next(adjusted)) for row in tested)
        return frame_of((_row(row, p_holm, alpha) for row, p_holm in rows), DRAWS)

    def _tested(self, workload: str) -> Iterator[Tested]:
        by_server = self._draws[workload]
        baseline = self.config.analysis.baseline
        reference = by_server.get(baseline, {})
        for server, own in by_server.items():
            prompts = {
                q[0]: _halves(drawn) if server == baseline else Sides(drawn, reference.get(q, ()))
                for q, drawn in sorted(own.items())
            }
            rows = [_tested(server, workload, *prompt) for prompt in prompts.items()]
            yield _together(rows)
            yield from rows


def sampling_faults(draws: pd.DataFrame, baseline: str) -> dict[str, str]:
    """What is wrong with the sampling of a server, where something is; from the table."""
    wrong = draws[(draws["verdict"] == Sampler.DIFFERS.value) & (draws["server"] != baseline)]
    return dict.fromkeys(wrong["server"], f"when sampling, {Sampler.DIFFERS.sentence}")


def _halves(drawn: Sequence[Draw]) -> Sides:
    middle = len(drawn) // 2
    return Sides(drawn[:middle], drawn[middle:])


def _tested(server: str, workload: str, prompt_id: str, sides: Sides) -> Tested:
    row = Tested(
        server, workload, prompt_id, (len(sides.own), len(sides.reference)), sides.distinct
    )
    if not sides.reference:
        return replace(row, verdict=Sampler.NOT_COMPARED, detail="the baseline has no draws of it")
    if max(sides.distinct) == 1:
        return replace(row, verdict=Sampler.NO_SAMPLING, detail="all draws are one answer")
    if sides.distinct[1] == 1:
        detail = "the baseline does not sample"
        return replace(row, verdict=Sampler.NOT_COMPARED, detail=detail)
    try:
        return replace(row, found=same_distribution(sides.own, sides.reference))
    except NotEnoughData as error:
        return replace(row, verdict=Sampler.NOT_COMPARED, detail=str(error))


def _together(rows: Sequence[Tested]) -> Tested:
    """One row for all prompts: independent tests, whose statistics and degrees of freedom add."""
    found = [row.found for row in rows if row.found is not None]
    own, reference = (sum(row.draws[side] for row in rows) for side in (0, 1))
    distinct = sum(row.distinct[0] for row in rows), sum(row.distinct[1] for row in rows)
    first = replace(rows[0], prompt_id=POOLED, draws=(own, reference), distinct=distinct)
    if not found:
        return first
    added = Homogeneity(
        statistic=sum(each.statistic for each in found),
        df=sum(each.df for each in found),
        prefixes=sum(each.prefixes for each in found),
        tokens=sum(each.tokens for each in found),
    )
    return replace(first, found=added, verdict=Sampler.SAME, detail="")


def _row(row: Tested, p_holm: float | None, alpha: float) -> Mapping[str, Value]:
    found = row.found
    differs = p_holm is not None and p_holm < alpha
    return {
        "server": row.server,
        "workload": row.workload,
        "prompt_id": row.prompt_id,
        "n": row.draws[0],
        "n_reference": row.draws[1],
        "answers": row.distinct[0],
        "answers_reference": row.distinct[1],
        "prefixes": None if found is None else found.prefixes,
        "tokens": None if found is None else found.tokens,
        "chi_square": None if found is None else found.statistic,
        "df": None if found is None else found.df,
        "p_value": None if found is None else found.p_value,
        "p_holm": p_holm,
        "verdict": (Sampler.DIFFERS if differs else row.verdict).value,
        "verdict_detail": row.detail,
    }
