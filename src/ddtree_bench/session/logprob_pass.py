"""What the target thought at each place of its greedy answers, asked after the last cell.

Up to a first difference two answers are the same, so that the target's log probabilities there tell
a tie, which rounding decides, from a fault. Nothing of this is timed. The prompts of a conversation
come from its recorded replies: they are rendered again, not measured again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ddtree_bench.client.answers import TopTokens
from ddtree_bench.client.client import ChatMessage, Client
from ddtree_bench.errors import RequestError
from ddtree_bench.findings import FindingCode
from ddtree_bench.hashing import json_sha256
from ddtree_bench.json_lines import DamagedFile
from ddtree_bench.prompts import prompts_of
from ddtree_bench.records import Finding, Question, RequestRecord
from ddtree_bench.session.cells import cells_of
from ddtree_bench.session.launch import LaunchNotes, Live
from ddtree_bench.session.logprobs import (
    TopLogprobs,
    answer_sha256,
    read_logprobs,
    write_logprobs,
)
from ddtree_bench.session.spec import SessionSpec
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.workloads.ask import Asker, CellTask
from ddtree_bench.workloads.hold import hold

TOP: Final = 5
"""Tokens a place. A near tie is among the first; a token beyond them is far below the first."""

Places = tuple[TopLogprobs, ...]


@dataclass(frozen=True, slots=True)
class LogprobStore:
    """A folder of recorded places, a file for the greedy answers of one workload in one launch."""

    folder: Path

    def get(self, cells: Sequence[MeasuredCell]) -> Places | None:
        """The places of these cells' answers; None if they were not recorded, or not as written."""
        path = self._path(cells)
        try:
            return tuple(read_logprobs(path)) if path.exists() else None
        except DamagedFile:  # recorded again with the next launch
            return None

    def put(self, cells: Sequence[MeasuredCell], places: Places) -> None:
        """Keep the places of these cells' answers."""
        write_logprobs(self._path(cells), places)

    def _path(self, cells: Sequence[MeasuredCell]) -> Path:
        answers = [
            [*question, record.output_ids] for question, (_, record) in _answers(cells).items()
        ]
        key = json_sha256({"cells": sorted(each.cell.key for each in cells), "answers": answers})
        return self.folder / f"{key}.jsonl"


def by_workload(
    spec: SessionSpec, cells: Iterable[MeasuredCell]
) -> Iterator[tuple[str, list[MeasuredCell]]]:
    """Those good cells whose answers are judged by log probabilities, workload by workload.

    In the order of the spec's cells, whatever was stored and what is new: it is that of the
    session's file, in which the first answer to a question is the reference.
    """
    place = {cell: number for number, cell in enumerate(cells_of(spec))}
    good = sorted((c for c in cells if c.cell.status.ok), key=lambda each: place[each.cell.cell])
    for name in spec.logprobs_of:
        if some := [each for each in good if each.cell.cell.workload == name]:
            yield name, some


def recorded(
    store: LogprobStore, spec: SessionSpec, cells: Sequence[MeasuredCell]
) -> Iterator[TopLogprobs]:
    """Every stored place of a session."""
    for _, some in by_workload(spec, cells):
        yield from store.get(some) or ()


def record_logprobs(
    live: Live, notes: LaunchNotes, store: LogprobStore, cells: Sequence[MeasuredCell]
) -> None:
    """Ask for the places that the store lacks; a server that gives none has lost nothing else."""
    missing = [(name, some) for name, some in by_workload(notes.spec, cells) if not store.get(some)]
    started_s = time.monotonic()
    try:
        for name, some in missing:
            store.put(some, tuple(_ask_all(live, notes, name, some)))
    except RequestError as error:
        notes.findings.append(Finding(code=FindingCode.NO_LOGPROBS, detail=error.what))
    if missing:
        notes.logprob_s = time.monotonic() - started_s


def _ask_all(
    live: Live, notes: LaunchNotes, workload: str, cells: Sequence[MeasuredCell]
) -> Iterator[TopLogprobs]:
    """The places of each first answer, asked for with as many in flight as it was given with.

    The size of a batch decides rounding: so the answer is repeated most often, and soonest.
    """
    prompts = _prompts(live, notes.spec, workload, cells)
    answers = [each for each in _answers(cells).values() if each[1].prompt_sha256 in prompts]
    for measured in cells:
        records = [record for source, record in answers if source is measured]
        notes.logprob_requests += len(records)
        asked = partial(_places, live.client, prompts)
        with ThreadPoolExecutor(measured.cell.cell.concurrency) as pool:
            yield from itertools.chain.from_iterable(pool.map(asked, records))


def _places(
    client: Client, prompts: Mapping[str, tuple[int, ...]], record: RequestRecord
) -> Places:
    """The places of one answer, asked for once more."""
    said = record.output_ids or ()
    sampling = record.sampling.model_copy(update={"max_new_tokens": len(said)})
    again = client.top_logprobs(prompts[record.prompt_sha256], sampling, TOP)
    answer = answer_sha256(said)
    return tuple(
        TopLogprobs(
            workload=record.cell.workload,
            prompt_id=record.prompt_id,
            turn=record.turn,
            prompt_sha256=record.prompt_sha256,
            position=position,
            top=tuple(place.nats.items()),
            answer_sha256=answer,
        )
        for position, place in enumerate(same_context(again, said))
        if place.nats
    )


def same_context(again: Sequence[TopTokens], said: Sequence[int]) -> Sequence[TopTokens]:
    """The places of a repeated answer before which it says what was said the first time.

    Plain decoding, too, may differ from itself where tokens tie; from there on it thinks of another
    text. The place of the difference itself still counts.
    """
    pairs = zip(again, said, strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0].token == pair[1], pairs))
    return again[: min(same + 1, len(said))]


def _answers(cells: Iterable[MeasuredCell]) -> dict[Question, tuple[MeasuredCell, RequestRecord]]:
    """The first greedy answer with ids to each question, and the cell that holds it."""
    first: dict[Question, tuple[MeasuredCell, RequestRecord]] = {}
    for measured in cells:
        for record in measured.requests:
            if record.sampling.temperature == 0 and record.output_ids:
                first.setdefault(record.question, (measured, record))
    return first


def _prompts(
    live: Live, spec: SessionSpec, workload: str, cells: Sequence[MeasuredCell]
) -> dict[str, tuple[int, ...]]:
    """Token ids of every rendered prompt by their hash, as far as they can be rendered again."""
    found: dict[str, tuple[int, ...]] = {}
    wanted = _answers(cells)
    for measured in cells:
        needed = {record.prompt_id for source, record in wanted.values() if source is measured}
        task = CellTask(
            cell=measured.cell.cell,
            workload=spec.workloads[workload],
            prompts=prompts_of(spec.workloads[workload], spec.protocol.seed),
            seed=spec.protocol.seed,
        )
        for prompt in task.prompts:
            if prompt.id in needed:
                said = [record for record in measured.requests if record.prompt_id == prompt.id]
                replay = _Replay(live.client, live.tokenizer, task, prompt, said=said)
                hold(replay)
                found |= replay.rendered
    return found


@dataclass(slots=True)
class _Replay(Asker):
    """Holds a recorded conversation once more without sending anything."""

    said: Sequence[RequestRecord] = ()
    rendered: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task = _ending(self.task, self)

    def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()
    ) -> RequestRecord:
        """Render the prompt and answer as recorded."""
        ids = self.render(messages)
        self.rendered[json_sha256(list(ids))] = ids
        self.records.append(self.said[len(self.records)])
        return self.records[-1]


def _ending(task: CellTask, replay: _Replay) -> CellTask:
    """The task, which ends with the last recorded answer."""
    return CellTask(
        cell=task.cell,
        workload=task.workload,
        prompts=task.prompts,
        seed=task.seed,
        should_stop=lambda: len(replay.records) >= len(replay.said),
    )
