"""Measure one cell on a live server and judge whether its records are fit to be counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.client.client import Client
from ddtree_bench.errors import RequestError
from ddtree_bench.prompts import prompts_of
from ddtree_bench.records import CellId, CellRecord, RequestRecord
from ddtree_bench.server.death import exit_code_after, how_it_died
from ddtree_bench.server.running import Running
from ddtree_bench.session.capacity import client_bound, underfilled
from ddtree_bench.session.integrity import CellFault, fault_of
from ddtree_bench.session.lag import LagMeter
from ddtree_bench.session.launch import Live
from ddtree_bench.session.spec import SessionSpec
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.session.watch import Watch
from ddtree_bench.status import Status
from ddtree_bench.workloads.ask import CellTask
from ddtree_bench.workloads.judging import judged, require_judges

Measure = Callable[[Client, PromptTokenizer, CellTask], tuple[RequestRecord, ...]]

_MAY_BE_DEATH = (Status.UNREACHABLE, Status.MALFORMED, Status.HUNG)
_LOST = {Status.DIED_IN_REQUEST, Status.OUT_OF_MEMORY, Status.HUNG}
_DEATHS = (Status.DIED_IN_REQUEST, Status.OUT_OF_MEMORY)


def measure_one(
    live: Live, spec: SessionSpec, cell: CellId, key: str, measure: Measure
) -> MeasuredCell:
    """A cell, well or failed; requests of a failed one are kept.

    Times, load and findings are those of the requests alone: the cache is flushed before them, and
    answers are judged after them.
    """
    task = _task(live, spec, cell)
    fault = _fault_of_flush(live, spec)
    asking = partial(measure, live.client, live.tokenizer, task) if fault is None else _nothing
    requests, seen = _watched(live.watch, cell, asking)
    if fault is None:
        requests = judged(task, told_of_death(live.server, requests))
        # draws of one prompt are asked again and again; nothing of them is timed
        cold = spec.flushes_cache and task.workload.draws is None
        fault = fault_of(
            requests,
            cold=cold,
            block_size=spec.server.block_size,
            vocabulary=live.tokenizer.vocabulary,
        )
        if fault is None or fault.status not in _DEATHS:
            fault = _death(live.server) or fault
    record = CellRecord(
        key=key,
        protocol=spec.protocol_version,
        cell=cell,
        round=cell.launch,
        workload_class=task.workload.counted_class,
        status=Status.OK if fault is None else fault.status,
        detail="" if fault is None else fault.detail,
        **seen,
    )
    return MeasuredCell(record, requests)


def _nothing() -> tuple[RequestRecord, ...]:
    return ()


def _watched(
    watch: Watch, cell: CellId, asking: Callable[[], tuple[RequestRecord, ...]]
) -> tuple[tuple[RequestRecord, ...], dict[str, Any]]:
    """The requests, and what was seen while they were asked, as `CellRecord` names it."""
    window = watch.begin()
    started_unix_s, started_s, cpu_s = time.time(), time.monotonic(), time.process_time()
    with LagMeter() as lag:
        requests = asking()
    wall_s = time.monotonic() - started_s
    ended_unix_s, client_s = time.time(), time.process_time() - cpu_s
    seen = watch.end(window)
    cpu_share = client_s / wall_s if wall_s > 0 else None
    return requests, {
        **seen._asdict(),
        "findings": (*seen.findings, *client_bound(cpu_share), *underfilled(cell, requests)),
        "started_unix_s": started_unix_s,
        "ended_unix_s": ended_unix_s,
        "client_cpu_share": cpu_share,
        "client_lag_s": lag.lag_s,
    }


def not_run(spec: SessionSpec, cell: CellId, key: str, why: str) -> MeasuredCell:
    """The row of a cell that could not be measured because its server had failed before."""
    now_unix_s = time.time()
    record = CellRecord(
        key=key,
        protocol=spec.protocol_version,
        cell=cell,
        round=cell.launch,
        workload_class=spec.workloads[cell.workload].counted_class,
        status=Status.NOT_RUN,
        detail=why,
        started_unix_s=now_unix_s,
        ended_unix_s=now_unix_s,
    )
    return MeasuredCell(record, ())


def told_of_death(
    server: Running, requests: tuple[RequestRecord, ...]
) -> tuple[RequestRecord, ...]:
    """The requests, those cut off by the end of the server's process saying so."""
    cut_off = [request.status for request in requests if request.status in _MAY_BE_DEATH]
    code = exit_code_after(server, cut_off[0]) if cut_off else None
    if code is None:
        return requests
    status, detail = how_it_died(server, code, Status.DIED_IN_REQUEST)
    change = {"status": status, "detail": detail}
    return tuple(
        request.model_copy(update=change) if request.status in _MAY_BE_DEATH else request
        for request in requests
    )


def is_lost(live: Live, measured: MeasuredCell) -> bool:
    """Whether no further request to this server can be trusted.

    One closed connection is no proof: the server is asked whether it still answers.
    """
    statuses = {measured.cell.status, *(request.status for request in measured.requests)}
    if live.server.exit_code() is not None or statuses & _LOST:
        return True
    if Status.UNREACHABLE not in statuses:
        return False
    try:
        live.client.health_generate()
    except RequestError:
        return True
    return False


def _task(live: Live, spec: SessionSpec, cell: CellId) -> CellTask:
    """What the cell asks; raises MachineError if its answers cannot be judged here."""
    workload = spec.workloads[cell.workload]
    task = CellTask(
        cell=cell,
        workload=workload,
        prompts=prompts_of(workload, spec.protocol.seed, cell.concurrency),
        seed=spec.protocol.seed,
        should_stop=lambda: live.server.exit_code() is not None,
    )
    require_judges(task)
    return task


def _fault_of_flush(live: Live, spec: SessionSpec) -> CellFault | None:
    """Why the prefix cache is not empty, where it should be."""
    if not spec.flushes_cache:
        return None
    try:
        live.client.flush_cache()
    except RequestError as error:
        return _death(live.server) or CellFault(error.status, f"flush_cache: {error.what}")
    return None


def _death(server: Running) -> CellFault | None:
    """How the server ended, if it has: then nothing that it answered before can be trusted."""
    code = server.exit_code()
    if code is None:
        return None
    return CellFault(*how_it_died(server, code, Status.DIED_IN_REQUEST))
