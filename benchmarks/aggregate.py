"""Seconds and memory to build all tables of a large run: 1,000 cells of 50 requests.

Writes a made-up run into a temporary folder first; that is not timed.

    PYTHONPATH=src python benchmarks/aggregate.py
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.random import Generator

from ddtree_bench.config import CLASSES, Config
from ddtree_bench.records import (
    CellId,
    CellRecord,
    Event,
    Launch,
    RequestRecord,
    Sampling,
    SpecCounts,
)
from ddtree_bench.session.store import MeasuredCell, write_cells
from ddtree_bench.status import Status
from ddtree_bench.tables import build_tables, write_tables

SERVERS, LAUNCHES, CONCURRENCIES, PROMPTS = 20, 5, (1, 4), 50
TOKENS, PER_STEP = 96, 4
STEPS = (TOKENS - 1) // PER_STEP


def config() -> Config:
    """One baseline, chains and trees, five classes."""
    drafting = {"model": "m", "drafter": "d", "block_size": 16}
    servers: dict[str, dict[str, object]] = {"ar": {"model": "m"}}
    for number in range(1, SERVERS):
        tree = {"algorithm": "DDTREE", "budget": number}
        servers[f"s{number}"] = {**drafting, **(tree if number % 2 else {"algorithm": "DFLASH"})}
    workloads = {name: {"class": name, "prompts": "p.jsonl"} for name in CLASSES}
    return Config.model_validate({"run": "large", "servers": servers, "workloads": workloads})


def requests_of(cell: CellId, rng: Generator) -> Iterator[RequestRecord]:
    """Plausible answers: an event a verify step."""
    plain = cell.server == "ar"
    counts = range(1, TOKENS + 1, 1 if plain else PER_STEP)
    for prompt in range(PROMPTS):
        at_s = np.cumsum(rng.lognormal(-4, 0.1, len(counts)))
        yield RequestRecord(
            cell=cell,
            prompt_id=f"p{prompt}",
            turn=0,
            prompt_sha256=f"{prompt:064x}",
            route="generate",
            stream=True,
            sampling=Sampling(max_new_tokens=TOKENS),
            sent_unix_s=1_700_000_000.0 + prompt,
            events=tuple(Event(at_s=float(s), tokens=n) for s, n in zip(at_s, counts, strict=True)),
            end_s=float(at_s[-1]),
            text="word " * TOKENS,
            output_ids=tuple(range(TOKENS)),
            prompt_tokens=40,
            completion_tokens=TOKENS,
            cached_tokens=0,
            finish_reason="length",
            spec=None if plain else _spec(),
        )


def _spec() -> SpecCounts:
    accepted = PER_STEP - 1
    histogram = (0,) * accepted + (STEPS,)
    return SpecCounts(verify_steps=STEPS, accepted_drafts=accepted * STEPS, histogram=histogram)


def write_session(folder: Path, server: str, launch: int, rng: Generator) -> None:
    """A session as the measuring side leaves it."""
    cells = []
    for name in CLASSES:
        for concurrency in CONCURRENCIES:
            cell = CellId(
                server=server, launch=launch, workload=name, concurrency=concurrency, repeat=1
            )
            record = CellRecord(
                key="k",
                protocol=1,
                cell=cell,
                round=launch,
                workload_class=name,
                status=Status.OK,
                started_unix_s=0,
                ended_unix_s=1,
            )
            cells.append(MeasuredCell(record, tuple(requests_of(cell, rng))))
    write_cells(folder / "cells.jsonl", cells)
    record_of_launch = Launch(
        protocol=1,
        run="large",
        server=server,
        launch=launch,
        attempt=1,
        status=Status.OK,
        started_unix_s=0,
        ended_unix_s=1,
    )
    (folder / "launch.json").write_text(record_of_launch.model_dump_json(), encoding="utf-8")


def main() -> None:
    """Write the run, time its aggregation, print the figures."""
    run, rng = config(), np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as root:
        folders = []
        for server in run.servers:
            for launch in range(1, LAUNCHES + 1):
                folders.append(Path(root) / server / f"launch-{launch}")
                write_session(folders[-1], server, launch, rng)
        start, start_cpu = time.perf_counter(), time.process_time()
        tables = build_tables(folders, run)
        built_s = time.perf_counter() - start
        write_tables(tables, Path(root) / "tables")
        total_s = time.perf_counter() - start
        cpu_s = time.process_time() - start_cpu
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(tables['cells'])} cells, {len(tables['requests'])} requests, "
        f"{len(tables['comparisons'])} comparisons: built in {built_s:.1f} s, "
        f"with writing {total_s:.1f} s ({cpu_s:.1f} s of CPU), peak {peak_mib:.0f} MiB"
    )


if __name__ == "__main__":
    main()
