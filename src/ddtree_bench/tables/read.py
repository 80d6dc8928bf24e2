"""Sessions of a run as they lie on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ddtree_bench.config import Config
from ddtree_bench.errors import BenchError
from ddtree_bench.findings import FindingCode
from ddtree_bench.records import Launch
from ddtree_bench.session.capacity import underfilled
from ddtree_bench.session.logprobs import TopLogprobs, read_logprobs
from ddtree_bench.session.store import MeasuredCell, read_cells


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """One launch of a server; its cells are read when they are asked for."""

    launch: Launch
    folder: Path

    def cells(self) -> Iterator[MeasuredCell]:
        """Every cell of the launch with its requests, one at a time."""
        yield from map(_with_load, read_cells(self.folder / "cells.jsonl"))

    def logprobs(self) -> Iterator[TopLogprobs]:
        """What the target thought at some places of its answers, if that was recorded."""
        yield from read_logprobs(self.folder / "logprobs.jsonl")


def read_sessions(folders: Sequence[Path], config: Config) -> list[RecordedSession]:
    """The sessions in these folders, servers in the order of the configuration, then launches.

    Raises:
        BenchError: a file is missing or not as written, or the configuration has no such server.
    """
    sessions = [RecordedSession(_launch(folder / "launch.json"), folder) for folder in folders]
    servers = list(config.servers)
    for session in sessions:
        if session.launch.server not in servers:
            raise BenchError(
                f"the configuration has no server `{session.launch.server}`",
                where=str(session.folder),
                remedy="leave this session out, or put the server back into the configuration",
            )
    return sorted(sessions, key=lambda s: (servers.index(s.launch.server), s.launch.launch))


def _with_load(measured: MeasuredCell) -> MeasuredCell:
    """The cell, marked if its load fell short: cells of old do not say so by themselves."""
    cell, requests = measured
    if any(finding.code is FindingCode.UNDERFILLED for finding in cell.findings):
        return measured
    found = underfilled(cell.cell, requests)
    if not found:
        return measured
    return MeasuredCell(cell.model_copy(update={"findings": (*cell.findings, *found)}), requests)


def _launch(path: Path) -> Launch:
    try:
        return Launch.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        what = "there is no record of this launch"
        raise BenchError(what, where=str(path), remedy="run the session again") from None
    except ValidationError as error:
        what = f"not the record of a launch: {error.errors()[0]['msg']}"
        raise BenchError(what, where=str(path), remedy="run the session again") from error
