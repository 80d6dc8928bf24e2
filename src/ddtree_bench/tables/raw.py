"""Tables that show what was recorded: requests, units, cells, failures, environment, servers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ddtree_bench.columns import CELLS, ENVIRONMENT, FAILURES, REQUESTS, SERVERS, UNITS
from ddtree_bench.config import Config
from ddtree_bench.hashing import json_sha256
from ddtree_bench.metrics import derive, in_flight, produced_tokens
from ddtree_bench.records import CellRecord, Failure, Launch, RequestRecord
from ddtree_bench.session.failures import failures_of, failures_of_cell
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.stats.acceptance import acceptance_length
from ddtree_bench.status import Status
from ddtree_bench.tables.rows import Rows, Value, frame_of


def is_sound(measured: MeasuredCell) -> bool:
    """Whether a cell enters statistics: ended ok, and every request of it, too."""
    return measured.cell.status.ok and all(request.status.ok for request in measured.requests)


class RawTables:
    """Collects sessions and cells, one after the other."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._launches: list[Launch] = []
        self._requests = Rows(REQUESTS)
        self._units = Rows(UNITS)
        self._cells = Rows(CELLS)
        self._failures = Rows(FAILURES)
        self._environment = Rows(ENVIRONMENT)

    def add_launch(self, launch: Launch) -> None:
        """Take a launch's facts, and its failure if it failed."""
        self._launches.append(launch)
        for name, value in _facts(launch):
            self._environment.add(
                server=launch.server, launch=launch.launch, name=name, value=value
            )
        for failure in launch.earlier_failures:
            self._fail(failure, launch, final=False)
        for failure in failures_of(launch, ()):
            self._fail(failure, launch)

    def add_cell(self, measured: MeasuredCell, launch: Launch) -> None:
        """Take a cell with its requests."""
        cell, requests = measured
        plain = self._config.servers[cell.cell.server].algorithm == "AR"
        keys = _keys(cell)
        for request in requests:
            self._requests.add(**keys, **_request_row(request, plain=plain))
        self.add_failures(measured, launch)
        self._cells.add(**keys, **_cell_row(measured))
        if is_sound(measured):
            for row in _unit_rows(requests, replays=self._replays(cell.cell.workload)):
                self._units.add(**keys, **row)

    def _replays(self, workload: str) -> bool:
        known = self._config.workloads.get(workload)
        return known is not None and known.replays

    def add_failures(self, measured: MeasuredCell, launch: Launch) -> None:
        """Take only what did not end well in a cell."""
        for failure in failures_of_cell(measured, launch.attempt):
            self._fail(failure, launch)

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables under their names."""
        rows = (self._requests, self._units, self._cells, self._failures, self._environment)
        frames = {collected.table.name: collected.frame() for collected in rows}
        return {**frames, SERVERS.name: frame_of(self._server_rows(), SERVERS)}

    def _fail(self, failure: Failure, launch: Launch, *, final: bool = True) -> None:
        cell = failure.cell
        self._failures.add(
            level=failure.level,
            server=launch.server,
            launch=launch.launch,
            workload=None if cell is None else cell.workload,
            concurrency=None if cell is None else cell.concurrency,
            repeat=None if cell is None else cell.repeat,
            prompt_id=failure.prompt_id,
            turn=failure.turn,
            status=failure.status.value,
            sentence=failure.status.sentence,
            detail=failure.detail,
            attempt=failure.attempt,
            final=final,
            log_tail=failure.log_tail if failure.level == "launch" else None,
        )

    def _server_rows(self) -> Iterator[Mapping[str, Value]]:
        for name, server in self._config.servers.items():
            launches = [
                launch
                for launch in self._launches
                if launch.server == name and launch.status is not Status.NOT_NEEDED
            ]
            measured = sum(launch.status.ok for launch in launches)
            yield {
                "server": name,
                "title": server.title or name,
                "engine": server.engine,
                "algorithm": server.algorithm,
                "model": server.model,
                "drafter": server.drafter,
                "block_size": server.block_size,
                "budget": server.budget,
                "topk_cap": server.topk_cap,
                "verify_width": server.verify_width,
                "launches_ok": measured,
                "launches_failed": len(launches) - measured,
                "argv": shlex.join(launches[-1].argv) if launches else None,
            }


def _keys(cell: CellRecord) -> dict[str, Value]:
    return {
        **cell.cell.model_dump(exclude={"arrivals_per_s"}),
        "workload_class": cell.workload_class,
    }


def _request_row(request: RequestRecord, *, plain: bool) -> dict[str, Value]:
    spec, check = request.spec, request.check
    return {
        "prompt_id": request.prompt_id,
        "turn": request.turn,
        "prompt_sha256": request.prompt_sha256,
        "status": request.status.value,
        "detail": request.detail,
        "prompt_tokens": request.prompt_tokens,
        "completion_tokens": request.completion_tokens,
        "overshoot_tokens": request.overshoot_tokens,
        "cached_tokens": request.cached_tokens,
        "finish_reason": request.finish_reason,
        "end_s": request.end_s,
        "events": len(request.events) if request.stream else None,
        "verify_steps": None if spec is None else spec.verify_steps,
        "accepted_drafts": None if spec is None else spec.accepted_drafts,
        "check_kind": None if check is None else check.kind,
        "check_valid": None if check is None else check.valid,
        **derive(request, plain=plain)._asdict(),
    }


def _unit_rows(requests: Sequence[RequestRecord], *, replays: bool) -> Iterator[dict[str, Value]]:
    """A row a prompt unit, from the requests of a sound cell.

    Servers that replay a conversation are paired on equal prompts in all of its turns; with their
    own histories, on its first prompt: what follows is each server's own doing.
    """
    units: dict[str, list[RequestRecord]] = {}
    for request in requests:
        units.setdefault(request.prompt_id, []).append(request)
    for prompt_id, some in units.items():
        members = sorted(some, key=lambda request: request.turn)
        tokens = _sum(request.completion_tokens for request in members)
        seconds = sum(request.end_s for request in members)
        specs = [request.spec for request in members]
        yield {
            "prompt_id": prompt_id,
            "prompt_sha256": _asked_sha256(members if replays else members[:1]),
            "requests": len(members),
            "completion_tokens": tokens,
            "seconds": seconds,
            "s_per_token": _each(seconds, tokens),
            "decode_s_per_token": _each(_after_first_s(members), tokens),
            "verify_steps": _sum(None if spec is None else spec.verify_steps for spec in specs),
            "accepted_drafts": _sum(
                None if spec is None else spec.accepted_drafts for spec in specs
            ),
        }


def _asked_sha256(members: Sequence[RequestRecord]) -> str:
    """Hash of what was asked: the prompt's own where there was one request."""
    asked = [request.prompt_sha256 for request in members]
    return asked[0] if len(asked) == 1 else json_sha256(asked)


def _after_first_s(members: Sequence[RequestRecord]) -> float | None:
    """Seconds of the answers after their first events; None if one has no event."""
    if not all(request.events for request in members):
        return None
    return sum(request.end_s - request.events[0].at_s for request in members)


def _each(seconds: float | None, tokens: int | None) -> float | None:
    """Seconds a token; None where either was not measured, or there is no token."""
    return None if seconds is None or tokens is None or tokens == 0 else seconds / tokens


def _sum(values: Iterator[int | None]) -> int | None:
    """The sum; None if a part of it was not measured."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _cell_row(measured: MeasuredCell) -> dict[str, Value]:
    cell, requests = measured
    tokens = _sum(request.completion_tokens for request in requests) if requests else None
    seconds = _span_s(requests)
    load = in_flight(requests)
    specs = [request.spec for request in requests if request.spec is not None]
    steps = sum(spec.verify_steps for spec in specs)
    checks = [request.check for request in requests if request.check is not None]
    return {
        "round": cell.round,
        "status": cell.status.value,
        "sentence": cell.status.sentence,
        "detail": cell.detail,
        "requests": len(requests),
        "failed_requests": sum(not request.status.ok for request in requests),
        "completion_tokens": tokens,
        "seconds": seconds,
        "tok_per_s": None if tokens is None or seconds is None else tokens / seconds,
        "mean_in_flight": load.mean,
        "max_in_flight": load.most,
        "acceptance_length": None
        if steps == 0
        else acceptance_length(
            np.array([produced_tokens(spec) for spec in specs]),
            np.array([spec.verify_steps for spec in specs]),
        ),
        "started_unix_s": cell.started_unix_s,
        "client_cpu_share": cell.client_cpu_share,
        "client_lag_s": cell.client_lag_s,
        "checks": len(checks),
        "checks_valid": sum(check.valid for check in checks),
        "overshoot_tokens": sum(request.overshoot_tokens for request in requests),
        "joules_per_token": _joules_per_token(cell, tokens),
        "flags": " ".join(finding.code for finding in cell.findings),
    }


def _joules_per_token(cell: CellRecord, tokens: int | None) -> float | None:
    """Energy of all GPUs together; None if that of one of them is not known."""
    energies = [gpu.energy_j for gpu in cell.gpus]
    known = [energy for energy in energies if energy is not None]
    if tokens is None or tokens == 0 or not known or len(known) < len(energies):
        return None
    return sum(known) / tokens


def _span_s(requests: Sequence[RequestRecord]) -> float | None:
    """Seconds from the first request sent to the last answer's end; None if there is no span."""
    if not requests:
        return None
    start = min(request.sent_unix_s for request in requests)
    span = max(request.sent_unix_s + request.end_s for request in requests) - start
    return span if span > 0 else None


def _facts(launch: Launch) -> Iterator[tuple[str, str]]:
    """Dotted names and values of everything known about a launch."""
    about = {
        "run": launch.run,
        "protocol": launch.protocol,
        "attempt": launch.attempt,
        "status": launch.status.value,
        "log_path": launch.log_path,
        "argv": shlex.join(launch.argv),
        "started_unix_s": launch.started_unix_s,
        "ready_after_s": launch.ready_after_s,
        "ended_unix_s": launch.ended_unix_s,
        "warmup_requests": launch.warmup_requests,
    }
    yield from flat("launch", about)
    if launch.status is Status.NOT_NEEDED:
        return  # nothing ran: its machine is no condition of any number
    yield from flat("env", launch.environment)
    yield from flat("identity", launch.identity)
    if launch.startup is not None:
        yield from flat("startup", launch.startup.model_dump(exclude={"phases"}))
    yield from flat("machine", launch.machine)


def flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON value
    """Dotted names and values of nested facts; a fact that is null is left out."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from flat(f"{prefix}.{key}", value[key])
    elif value is not None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield prefix, text
