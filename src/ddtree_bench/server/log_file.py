"""A server's log on disk, read while it grows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from ddtree_bench.findings import FindingCode
from ddtree_bench.records import Finding, Startup, StartupPhase
from ddtree_bench.server.log import LogFailure, LogFinding, LogParser, ServerLog, parse_log


class LogFile:
    """The log of one launch; each `read` goes on where the last one ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parser = LogParser()
        self._offset = 0
        self._torn = b""

    def read(self) -> ServerLog:
        """What all whole lines so far tell; nothing where there is no file yet."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
            self._offset += len(new)
            *lines, self._torn = (self._torn + new).split(b"\n")
            for line in lines:
                self._parser.feed(line.decode("utf-8", errors="replace"))
        return self._parser.log()


def failure_in(path: Path) -> LogFailure | None:
    """The exception or death that a whole log tells of; None if it tells of none."""
    if not path.exists():
        return None
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        return parse_log(lines).failure


def startup_of(log: ServerLog) -> Startup | None:
    """How the server started; None if its log tells nothing of it (another engine's log)."""
    if not log.phases and not log.pools and log.capacity is None:
        return None
    pool = next((pool for pool in log.pools if pool.kind == "KV"), None)
    capacity = log.capacity
    phases = (
        StartupPhase(
            name=phase.name,
            elapsed_s=phase.elapsed_s,
            used_gib=phase.used_gib,
            tokens_per_request=phase.tokens_per_request,
            batch_sizes=phase.batch_sizes,
        )
        for phase in log.phases
    )
    return Startup(
        phases=tuple(phases),
        parts_s=log.startup_s,
        kv_pool_tokens=None if pool is None else pool.size,
        kv_pool_gib=None if pool is None else pool.total_gib,
        max_running_requests=None if capacity is None else capacity.max_running_requests,
        free_gib=None if capacity is None else capacity.available_gib,
        verify_width=log.verify_width,
    )


def counted(
    findings: Iterable[LogFinding], declared: Collection[FindingCode] = ()
) -> tuple[Finding, ...]:
    """One record a code, with its first line; codes that the configuration asks for left out."""
    by_code: dict[FindingCode, list[LogFinding]] = {}
    for finding in findings:
        if finding.code not in declared:
            by_code.setdefault(finding.code, []).append(finding)
    return tuple(
        Finding(
            code=code, count=len(some), detail=f"log line {some[0].line_number}: {some[0].line}"
        )
        for code, some in by_code.items()
    )
