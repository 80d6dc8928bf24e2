"""What is noticed while a server is measured: its log, the machine's sensors, other processes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from ddtree_bench.findings import FindingCode
from ddtree_bench.records import Finding, GpuLoad, HostLoad
from ddtree_bench.server.log_file import LogFile, counted
from ddtree_bench.server.neighbours import Look, Neighbour, busiest, look
from ddtree_bench.server.telemetry import (
    GpuSampler,
    GpuSummary,
    HostSampler,
    HostSummary,
    process_tree,
)

BUSY_GPU_SHARE: Final = 0.10
"""Mean share of a GPU that a process of others may take before a cell is flagged."""

THROTTLED_SHARE: Final = 0.05
"""Share of the samples in which a GPU may slow its clocks before a cell is flagged."""

_LOOK_AGAIN_S: Final = 5.0


class OwnProcesses:
    """Ids of this process and its descendants, the server's among them.

    They are looked up again after some seconds only: walking all processes each second would
    disturb what is measured.
    """

    def __init__(self) -> None:
        self._pids: frozenset[int] = frozenset()
        self._looked_s: float | None = None

    def __call__(self) -> frozenset[int]:
        """The ids as of the last few seconds."""
        now_s = time.monotonic()
        if self._looked_s is None or now_s - self._looked_s > _LOOK_AGAIN_S:
            self._pids, self._looked_s = process_tree(os.getpid()), now_s
        return self._pids


@dataclass(frozen=True, slots=True)
class Window:
    """A cell that is being measured."""

    began_unix_s: float
    processes: Look | None


class Seen(NamedTuple):
    """What was noticed in a window, as `CellRecord` keeps it."""

    host: HostLoad | None = None
    gpus: tuple[GpuLoad, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Watch:
    """Eyes on one launch; without any (an attached server) nothing is noticed."""

    own: OwnProcesses | None = None
    log: LogFile | None = None
    gpu_sampler: GpuSampler | None = None
    host_sampler: HostSampler | None = None
    declared: frozenset[FindingCode] = frozenset()
    """What the configuration asks for and is therefore no finding."""
    always: tuple[Finding, ...] = ()
    """What holds for every cell of this launch."""

    def begin(self) -> Window:
        """Start to look at a cell."""
        processes = None if self.own is None else look()
        return Window(time.time(), processes)

    def end(self, window: Window) -> Seen:
        """What was noticed since `begin`."""
        ended_unix_s = time.time()
        span = (window.began_unix_s, ended_unix_s)
        host = None if self.host_sampler is None else self.host_sampler.summary(*span)
        gpus = () if self.gpu_sampler is None else self.gpu_sampler.summary(*span)
        return Seen(
            None if host is None else HostLoad.model_validate(asdict(host)),
            tuple(GpuLoad.model_validate(asdict(gpu)) for gpu in gpus),
            (
                *self.always,
                *self._said(*span),
                *_busy_host(host, self._neighbour(window)),
                *_gpu_findings(gpus),
            ),
        )

    def _said(self, began_unix_s: float, ended_unix_s: float) -> tuple[Finding, ...]:
        if self.log is None:
            return ()
        log = self.log.read().between(began_unix_s, ended_unix_s)
        return counted(log.findings, self.declared)

    def _neighbour(self, window: Window) -> Neighbour | None:
        if window.processes is None:
            return None
        return busiest(window.processes, look(), process_tree(os.getpid()))


@contextlib.contextmanager
def watching(
    log: LogFile, environ: Mapping[str, str], declared: frozenset[FindingCode]
) -> Iterator[Watch]:
    """Eyes on a server that this process has started; the sensors are read within the block.

    Args:
        log: of the server.
        environ: the server's environment, which says what GPUs it sees.
        declared: findings that the configuration asks for.
    """
    own = OwnProcesses()
    with contextlib.ExitStack() as stack:
        gpu = GpuSampler.open(own, environ)
        if gpu is not None:
            stack.enter_context(gpu)
        host = stack.enter_context(HostSampler(own))
        yield Watch(own, log, gpu, host, declared)


def _busy_host(host: HostSummary | None, neighbour: Neighbour | None) -> Iterator[Finding]:
    if neighbour is not None and neighbour.disturbs:
        yield Finding(code=FindingCode.BUSY_HOST, detail=str(neighbour))
    elif host is not None and host.disturbed:
        said = f"all others together: {host.foreign_share.mean:.0%} of all CPUs"
        yield Finding(code=FindingCode.BUSY_HOST, detail=said)


def _gpu_findings(gpus: tuple[GpuSummary, ...]) -> Iterator[Finding]:
    for gpu in gpus:
        foreign = gpu.foreign_utilisation
        if foreign is not None and foreign.mean > BUSY_GPU_SHARE:
            said = f"{gpu.gpu}: {foreign.mean:.0%} of it"
            yield Finding(code=FindingCode.BUSY_GPU, detail=said)
        if gpu.throttled_share is not None and gpu.throttled_share > THROTTLED_SHARE:
            reasons = ", ".join(gpu.throttle_reasons or ())
            said = f"{gpu.gpu}: {reasons}, in {gpu.throttled_share:.0%} of the samples"
            yield Finding(code=FindingCode.THROTTLED, detail=said)
