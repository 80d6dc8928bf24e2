"""Errors of the pipeline.

BenchError
├── ConfigError         the configuration contradicts itself; nothing was started
├── MachineError        this machine lacks something (interpreter, model, TeX, port)
├── ServerError         a server did not do what its configuration says (carries a Status)
├── RequestError        one request failed (carries a Status)
└── NotEnoughData       a statistic was asked of too few values

Every message says what is wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtree_bench.status import Status


class BenchError(Exception):
    """An error told as what is wrong, where, and what to do."""

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        lines = [self.what]
        if self.where is not None:
            lines.append(f"  at: {self.where}")
        if self.remedy is not None:
            lines.append(f"  try: {self.remedy}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a configuration: `file:line key` and what is wrong with it."""

    file: str
    line: int | None
    key: str
    what: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place} {self.key}\n  {self.what}"


class ConfigError(BenchError):
    """All faults of a configuration at once."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = tuple(faults)


class MachineError(BenchError):
    """This machine lacks something that the run needs."""


class ServerError(BenchError):
    """A server failed; `status` names how, `log_tail` is the end of what it printed."""

    def __init__(
        self,
        status: Status,
        what: str,
        *,
        log_tail: str = "",
        where: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.status = status
        self.log_tail = log_tail


class RequestError(BenchError):
    """One request failed; `status` names how."""

    def __init__(
        self, status: Status, what: str, *, where: str | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.status = status


class NotEnoughData(BenchError):
    """A statistic needs more values than there are."""

    def __init__(self, have: int, need: int, of: str) -> None:
        super().__init__(f"{have} {of}, at least {need} needed")
        self.have = have
        self.need = need
