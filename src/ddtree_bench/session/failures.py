"""What failed in each attempt of a launch, kept when a later attempt makes it good.

A server that needs two attempts is another one than a server that needs one. An attempt that fails
writes no outputs, so that it can be made again; its failures go into `failures.jsonl` beside them,
a line an attempt, and from there into the record of the attempt that is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from ddtree_bench.json_lines import read_good_lines
from ddtree_bench.records import CellId, Failure, Launch, Record
from ddtree_bench.session.store import MeasuredCell, write_whole
from ddtree_bench.status import Status


class FailedAttempt(Record):
    """One attempt of a launch in which something failed."""

    conditions: str
    """Hash of server and machine (`cells.launch_key`): another server's failures are not ours."""
    started_unix_s: float
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class FailureHistory:
    """The failed attempts of a launch under the same conditions, oldest first."""

    path: Path
    conditions: str

    def add(self, launch: Launch, cells: Iterable[MeasuredCell]) -> None:
        """Keep what failed in an attempt, if anything did; what was not run did not fail."""
        failures = tuple(
            failure
            for failure in failures_of(launch, cells)
            if failure.status is not Status.NOT_RUN
        )
        if not failures:
            return
        attempt = FailedAttempt(
            conditions=self.conditions, started_unix_s=launch.started_unix_s, failures=failures
        )
        lines = [each.model_dump_json() for each in (*self._attempts(), attempt)]
        write_whole(self.path, "".join(f"{line}\n" for line in lines))

    def before(self, launch: Launch, cells: Collection[CellId]) -> tuple[Failure, ...]:
        """Failures of other attempts than this one: of the launch, and of these cells."""
        return tuple(
            failure
            for attempt in self._attempts()
            if attempt.conditions == self.conditions
            and attempt.started_unix_s != launch.started_unix_s
            for failure in attempt.failures
            if failure.cell is None or failure.cell in cells
        )

    def _attempts(self) -> Iterator[FailedAttempt]:
        return read_good_lines(self.path, TypeAdapter(FailedAttempt))


def failures_of(launch: Launch, cells: Iterable[MeasuredCell]) -> Iterator[Failure]:
    """Everything in an attempt that did not end well: launch, then cells with their requests."""
    if launch.status.failed:
        yield Failure(
            level="launch",
            attempt=launch.attempt,
            status=launch.status,
            detail=launch.detail,
            log_tail=launch.log_tail,
        )
    for measured in cells:
        yield from failures_of_cell(measured, launch.attempt)


def failures_of_cell(measured: MeasuredCell, attempt: int) -> Iterator[Failure]:
    """Requests of a cell that did not end well, then the cell if it did not."""
    cell, requests = measured
    for request in requests:
        if not request.status.ok:
            yield Failure(
                level="request",
                attempt=attempt,
                cell=cell.cell,
                prompt_id=request.prompt_id,
                turn=request.turn,
                status=request.status,
                detail=request.detail,
            )
    if not cell.status.ok:
        yield Failure(
            level="cell",
            attempt=attempt,
            cell=cell.cell,
            status=cell.status,
            detail=cell.detail,
        )
