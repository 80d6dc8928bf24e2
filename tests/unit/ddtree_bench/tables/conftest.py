"""A run of three servers whose records are easy to reckon with.

Every answer has 21 tokens: one from prefill, then for drafting servers five verify steps of four
tokens (three drafts accepted), for plain ones a step a token. All steps take the same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ddtree_bench.config import Config
from ddtree_bench.records import (
    CellId,
    CellRecord,
    Event,
    Launch,
    RequestRecord,
    Sampling,
    SpecCounts,
    TreeCounts,
)
from ddtree_bench.session.store import MeasuredCell, write_cells
from ddtree_bench.status import Status

TOKENS = 21
STEPS = 5
SERVERS: dict[str, dict[str, Any]] = {
    "ar": {"algorithm": "AR", "title": "plain"},
    "chain": {"algorithm": "DFLASH", "drafter": "d", "block_size": 8},
    "tree": {"algorithm": "DDTREE", "drafter": "d", "block_size": 8, "budget": 7},
}

Seconds = Mapping[str, Mapping[str, float]]
"""Seconds per token by workload and prompt."""


@pytest.fixture
def config() -> Config:
    return Config.model_validate(
        {
            "run": "story",
            "servers": {name: {"model": "m", **keys} for name, keys in SERVERS.items()},
            "workloads": {
                name: {"class": name, "prompts": f"{name}.jsonl"}
                for name in ("short", "longform", "original")
            },
        }
    )


def request_record(
    cell: CellId, prompt_id: str, s_per_token: float, **changes: Any
) -> RequestRecord:
    """An ok request that took `s_per_token` for each of its tokens."""
    per_step = 1 if cell.server == "ar" else (TOKENS - 1) // STEPS
    counts = range(1, TOKENS + 1, per_step)
    fields: dict[str, Any] = {
        "cell": cell,
        "prompt_id": prompt_id,
        "turn": 0,
        "prompt_sha256": hashlib.sha256(prompt_id.encode()).hexdigest(),
        "route": "generate",
        "stream": True,
        "sampling": Sampling(max_new_tokens=TOKENS),
        "sent_unix_s": 1_700_000_000.0,
        "events": tuple(Event(at_s=s_per_token * n, tokens=n) for n in counts),
        "end_s": s_per_token * TOKENS,
        "output_ids": tuple(range(TOKENS)),
        "prompt_tokens": 10,
        "completion_tokens": TOKENS,
        "cached_tokens": 0,
        "finish_reason": "length",
        "spec": _spec(cell.server),
        "tree": _tree(cell.server),
    }
    return RequestRecord.model_validate({**fields, **changes})


def _spec(server: str) -> SpecCounts | None:
    if server == "ar":
        return None
    accepted = 3 * STEPS
    return SpecCounts(
        verify_steps=STEPS,
        accepted_drafts=accepted,
        proposed_drafts=7 * STEPS,
        histogram=(0, 0, 0, STEPS),
    )


def _tree(server: str) -> TreeCounts | None:
    if server != "tree":
        return None
    return TreeCounts(
        verify_width=8,
        nodes_by_depth=(15, 10, 10),
        accepted_by_depth=(5, 5, 5),
        accepted_by_rank=(12, 3),
        spine_nodes=15,
    )


def failed_record(cell: CellId, prompt_id: str, status: Status) -> RequestRecord:
    """A request that got no answer."""
    nothing: dict[str, Any] = {
        "status": status,
        "detail": "it said nothing",
        "events": (),
        "output_ids": None,
        "prompt_tokens": None,
        "completion_tokens": None,
        "finish_reason": None,
        "spec": None,
        "tree": None,
    }
    return request_record(cell, prompt_id, 0.01, **nothing)


def cell_id(server: str, launch: int, workload: str, *, repeat: int = 1) -> CellId:
    return CellId(server=server, launch=launch, workload=workload, concurrency=1, repeat=repeat)


def measured_cell(
    cell: CellId, requests: tuple[RequestRecord, ...], status: Status = Status.OK
) -> MeasuredCell:
    record = CellRecord(
        key="k",
        protocol=1,
        cell=cell,
        round=cell.launch,
        workload_class=cell.workload,
        status=status,
        started_unix_s=1_700_000_000.0,
        ended_unix_s=1_700_000_060.0,
        client_cpu_share=0.05,
    )
    return MeasuredCell(record, requests)


class Run:
    """The session folders of a run, written as the measuring side writes them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: list[Path] = []

    def add(
        self,
        server: str,
        launch: int,
        cells: list[MeasuredCell],
        status: Status = Status.OK,
        **changes: Any,
    ) -> Path:
        """Write a session of these cells."""
        folder = self.root / server / f"launch-{launch}"
        fields: dict[str, Any] = {
            "protocol": 1,
            "run": "story",
            "server": server,
            "launch": launch,
            "attempt": 1,
            "status": status,
            "argv": ("python", "-m", "engine", "--name", "a b"),
            "started_unix_s": 1_700_000_000.0,
            "ended_unix_s": 1_700_000_100.0,
        }
        record = Launch.model_validate({**fields, **changes})
        write_cells(folder / "cells.jsonl", cells)
        (folder / "launch.json").write_text(record.model_dump_json(), encoding="utf-8")
        self.folders.append(folder)
        return folder

    def ok(self, server: str, launch: int, seconds: Seconds) -> Path:
        """Write a session whose requests took these seconds per token."""
        cells = [
            measured_cell(
                cell_id(server, launch, workload),
                tuple(
                    request_record(cell_id(server, launch, workload), prompt, s_per_token)
                    for prompt, s_per_token in prompts.items()
                ),
            )
            for workload, prompts in seconds.items()
        ]
        return self.add(server, launch, cells)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "sessions")


@pytest.fixture
def records() -> dict[str, Callable[..., Any]]:
    """The builders, for tests that write odd sessions."""
    return {
        "request": request_record,
        "failed": failed_record,
        "cell": measured_cell,
        "id": cell_id,
    }


@pytest.fixture
def two_rounds(run: Run) -> Run:
    """Two launches of each server; the tree needs a quarter of plain decoding's time.

    Launches differ by 0.2 %; plain decoding takes 10 % longer for one prompt of class `short`.
    """
    base = {"ar": 0.020, "chain": 0.010, "tree": 0.005}
    for launch, drift in ((1, 1.0), (2, 1.002)):
        for server, s_per_token in base.items():
            second = 1.1 if server == "ar" else 1.0
            run.ok(
                server,
                launch,
                {
                    "short": {"p1": s_per_token * drift, "p2": s_per_token * drift * second},
                    "longform": {"p1": s_per_token * drift, "p2": s_per_token * drift},
                    "original": {"two-plus-two": s_per_token},
                },
            )
    return run
