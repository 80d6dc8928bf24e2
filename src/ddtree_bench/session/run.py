"""Measure one launch of one server and write its outputs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ddtree_bench import PROTOCOL
from ddtree_bench.errors import ConfigError, Fault, ServerError
from ddtree_bench.hashing import file_sha256
from ddtree_bench.layout import RunLayout
from ddtree_bench.records import CellId, CellRecord, Launch
from ddtree_bench.server.engines import check_machine, command
from ddtree_bench.server.machine import decisive_facts, machine_facts
from ddtree_bench.server.preflight import check_sglang
from ddtree_bench.session.cells import cell_key, cells_of, launch_key
from ddtree_bench.session.failures import FailureHistory
from ddtree_bench.session.histories import history_findings
from ddtree_bench.session.launch import LaunchNotes, Live, facts_of_attached, launched
from ddtree_bench.session.logprob_pass import LogprobStore, record_logprobs, recorded
from ddtree_bench.session.logprobs import write_logprobs
from ddtree_bench.session.measuring import Measure, is_lost, measure_one, not_run
from ddtree_bench.session.spec import SessionSpec
from ddtree_bench.session.store import CellStore, MeasuredCell, write_cells, write_whole
from ddtree_bench.status import Status
from ddtree_bench.workloads.run import measure_cell

FROM_STORE = "all cells from the store"


@dataclass(frozen=True, slots=True)
class Session:
    """What one call is about: a spec, where its files go, and which attempt it is."""

    spec: SessionSpec
    results: Path
    attempt: int = 1
    fresh: bool = False
    measure: Measure = measure_cell

    @property
    def layout(self) -> RunLayout:
        """Where the run's files go."""
        return RunLayout.of(self.spec.run, self.results)

    @property
    def folder(self) -> Path:
        """Where the outputs go."""
        return self.layout.session(self.spec.name, self.spec.launch)

    @property
    def store(self) -> CellStore:
        """Where finished cells are kept."""
        return CellStore(self.layout.cells)

    @property
    def logprobs(self) -> LogprobStore:
        """Where the target's log probabilities are kept."""
        return LogprobStore(self.layout.logprobs)

    @property
    def kept_launch(self) -> Path:
        """A copy of `launch.json`: Snakemake deletes that before it runs the session again."""
        return self.folder / "launch.kept.json"

    def notes(self, machine: dict[str, Any]) -> LaunchNotes:
        """Empty notes of this attempt's launch."""
        log_path = self.folder / f"attempt-{self.attempt}.server.log"
        notes = LaunchNotes(self.spec, self.attempt, log_path, machine)
        notes.findings += history_findings(self.spec, machine.get("model_sha256"))
        return notes


@dataclass(slots=True)
class Progress:
    """One line on stderr for each cell."""

    total: int
    done: int = 0
    busy_s: float = 0.0

    def tell(self, measured: MeasuredCell) -> None:
        """Say how a cell ended and how long the rest may take."""
        cell = measured.cell
        took_s = cell.ended_unix_s - cell.started_unix_s
        self.done += 1
        self.busy_s += took_s
        left_s = self.busy_s / self.done * (self.total - self.done)
        tokens = sum(request.completion_tokens or 0 for request in measured.requests)
        said = f"{tokens / took_s:.1f} tok/s" if cell.status.ok and took_s > 0 else _failure(cell)
        place = f"[{self.done}/{self.total}] {cell.cell}"
        print(
            f"{place}: {said}, {took_s:.0f} s{_flags(cell)}; about {left_s:.0f} s left",
            file=sys.stderr,
            flush=True,
        )


def run(session: Session) -> int:
    """Measure what the store lacks and write the outputs; returns the exit code.

    Raises:
        ConfigError: the prompts are not those of the spec, or SGLang does not know a flag.
        MachineError: this machine lacks something.
    """
    session = replace(session, spec=session.spec.with_replies(session.layout.replies))
    spec, store = session.spec, session.store
    check_prompts(spec)
    check_machine(spec.server)
    machine = machine_facts(spec.server)
    facts = decisive_facts(machine)
    served = {**facts, **facts_of_attached(spec)}
    keys = {cell: cell_key(spec, cell, served) for cell in cells_of(spec)}
    stored = {} if session.fresh else {cell: store.get(key) for cell, key in keys.items()}
    known = {cell: measured for cell, measured in stored.items() if measured is not None}
    missing = {cell: key for cell, key in keys.items() if cell not in known}
    history = FailureHistory(session.folder / "failures.jsonl", launch_key(spec, facts))
    if not missing:
        launch = _launch_of_before(session, machine, known.values())
        write_outputs(session, history, launch, list(known.values()))
        return 0
    unneeded = None if known else _reason_not_needed(session)
    if unneeded is not None:  # a round that has begun is finished
        print(f"{spec.name} launch {spec.launch}: {unneeded}", file=sys.stderr, flush=True)
        launch = session.notes(machine).record(Status.NOT_NEEDED, unneeded)
        write_outputs(session, history, launch, [])
        return 0
    if spec.server.engine == "sglang":
        env = command(spec.name, spec.server, port=0, surroundings=os.environ).env
        check_sglang(spec.name, spec.server, env, session.results)
    launch, measured = measure_missing(session, session.notes(machine), missing, known)
    history.add(launch, measured.values())
    failed = [cell for cell in measured.values() if not cell.cell.status.ok]
    if (failed or not launch.status.ok) and session.attempt < spec.protocol.attempts:
        print(f"attempt {session.attempt} failed: {_why(launch, failed)}", file=sys.stderr)
        return 1
    everything = {**known, **measured}
    write_outputs(session, history, launch, [everything[cell] for cell in keys])
    return 0


def measure_missing(
    session: Session,
    notes: LaunchNotes,
    missing: dict[CellId, str],
    known: Mapping[CellId, MeasuredCell],
) -> tuple[Launch, dict[CellId, MeasuredCell]]:
    """How the launch ended, and each missing cell: measured, failed or not run.

    Cells that are known already have a part in the log probabilities only.
    """
    measured: dict[CellId, MeasuredCell] = {}
    try:
        with launched(notes) as live:
            _measure_all(session, live, missing, measured)
            everything = [*known.values(), *measured.values()]
            record_logprobs(live, notes, session.logprobs, everything)
        launch = notes.record(Status.OK)
    except ServerError as error:
        launch = notes.record(error.status, error.what, error.log_tail)
    why = f"{launch.status.sentence}: {launch.detail}"
    rest = {
        cell: not_run(session.spec, cell, key, why)
        for cell, key in missing.items()
        if cell not in measured
    }
    return launch, {**measured, **rest}


def _measure_all(
    session: Session,
    live: Live,
    missing: dict[CellId, str],
    measured: dict[CellId, MeasuredCell],
) -> None:
    """Fill `measured`; raises ServerError as soon as the server cannot be trusted any more."""
    progress = Progress(len(missing))
    for cell, key in missing.items():
        result = measure_one(live, session.spec, cell, key, session.measure)
        measured[cell] = result
        if result.cell.status.ok:
            session.store.put(result)
        progress.tell(result)
        if is_lost(live, result):
            raise ServerError(
                result.cell.status, result.cell.detail, log_tail=live.server.log_tail()
            )


def write_outputs(
    session: Session, history: FailureHistory, launch: Launch, cells: Sequence[MeasuredCell]
) -> None:
    """Write `logprobs.jsonl`, `cells.jsonl`, and last `launch.json`: with it all is there."""
    # an interruption in between must not leave an old launch beside new cells
    (session.folder / "launch.json").unlink(missing_ok=True)
    places = recorded(session.logprobs, session.spec, cells)
    write_logprobs(session.folder / "logprobs.jsonl", places)
    write_cells(session.folder / "cells.jsonl", cells)
    earlier = history.before(launch, cells_of(session.spec))
    launch = launch.model_copy(update={"earlier_failures": earlier})
    text = launch.model_dump_json(indent=1) + "\n"
    write_whole(session.kept_launch, text)
    write_whole(session.folder / "launch.json", text)


def read_spec(path: Path) -> SessionSpec:
    """The spec in a file; raises ConfigError if it is none, or of another protocol."""
    try:
        spec = SessionSpec.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError([Fault(str(path), None, "", "there is no such file")]) from None
    except ValidationError as error:
        faults = [
            Fault(str(path), None, ".".join(map(str, one["loc"])), one["msg"])
            for one in error.errors()
        ]
        raise ConfigError(faults) from error
    if spec.protocol_version != PROTOCOL:
        what = f"written for protocol {spec.protocol_version}, this is {PROTOCOL}; write it again"
        raise ConfigError([Fault(str(path), None, "protocol_version", what)])
    return spec


def check_prompts(spec: SessionSpec) -> None:
    """Raise ConfigError if a prompt file is missing or was changed after the spec was written."""
    faults = []
    for name, workload in spec.workloads.items():
        path = Path(workload.prompts)
        if not path.is_file():
            faults.append(Fault(str(path), None, f"workloads.{name}.prompts", "no such file"))
        elif file_sha256(path) != spec.prompts_sha256[name]:
            what = "changed since the session's spec was written; start the run again"
            faults.append(Fault(str(path), None, f"workloads.{name}.prompts", what))
    if faults:
        raise ConfigError(faults)


def _reason_not_needed(session: Session) -> str | None:
    """Why this round is not needed; None if it is."""
    if session.spec.needed_by is None:
        return None
    # imported where it is due: it needs pandas, which a GPU node may lack
    from ddtree_bench.rounds.adaptive import reason_not_needed

    return reason_not_needed(session.spec.needed_by, session.spec.launch, session.results)


def _launch_of_before(
    session: Session, machine: dict[str, Any], cells: Iterable[MeasuredCell]
) -> Launch:
    """The launch that measured the newest of the stored cells, as far as this folder knows it.

    The folder may hold another one's record: of a configuration in between, or of a failure.
    """
    newest_unix_s = max(measured.cell.ended_unix_s for measured in cells)
    for path in (session.folder / "launch.json", session.kept_launch):
        if path.exists():
            launch = Launch.model_validate_json(path.read_bytes())
            if launch.status.ok and launch.started_unix_s <= newest_unix_s <= launch.ended_unix_s:
                return launch
    return session.notes(machine).record(Status.OK, FROM_STORE)


def _why(launch: Launch, failed: Sequence[MeasuredCell]) -> str:
    if not launch.status.ok:
        return f"{launch.status.sentence}: {launch.detail}"
    first = failed[0].cell
    return f"{len(failed)} cells, the first {first.cell}: {_failure(first)}"


def _flags(cell: CellRecord) -> str:
    codes = ", ".join(finding.code for finding in cell.findings)
    return f", flagged: {codes}" if codes else ""


def _failure(cell: CellRecord) -> str:
    return f"{cell.status.sentence} ({cell.detail})"
