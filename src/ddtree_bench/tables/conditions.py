"""Tables of the conditions of a measurement: start-up, findings, telemetry, differences."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ddtree_bench.columns import DIFFERENCES, FINDINGS, STARTUP, TELEMETRY
from ddtree_bench.config import Config
from ddtree_bench.records import CellId, CellRecord, Finding, GpuLoad, HostLoad, Launch, Spread
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.tables.differences import difference_frame
from ddtree_bench.tables.rows import Rows, Value

HOST = "host"
"""Stands for the CPUs where a device is named."""


class ConditionTables:
    """Collects launches and cells, one after the other."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._launches: list[Launch] = []
        self._startup = Rows(STARTUP)
        self._findings = Rows(FINDINGS)
        self._telemetry = Rows(TELEMETRY)

    def add_launch(self, launch: Launch) -> None:
        """Take how a server started and what was noticed about it."""
        self._launches.append(launch)
        phases = () if launch.startup is None else launch.startup.phases
        for step, phase in enumerate(phases, start=1):
            self._startup.add(
                server=launch.server,
                launch=launch.launch,
                step=step,
                phase=phase.name,
                elapsed_s=phase.elapsed_s,
                used_gib=phase.used_gib,
                tokens_per_request=phase.tokens_per_request,
                batch_sizes=" ".join(map(str, phase.batch_sizes)),
            )
        for finding in launch.findings:
            self._find("launch", launch.server, launch.launch, finding)

    def add_cell(self, measured: MeasuredCell) -> None:
        """Take what was noticed during a cell."""
        cell = measured.cell
        for finding in cell.findings:
            self._find("cell", cell.cell.server, cell.cell.launch, finding, cell.cell)
        for row in _devices(cell):
            keys = cell.cell.model_dump(exclude={"arrivals_per_s"})
            self._telemetry.add(**keys, workload_class=cell.workload_class, **row)

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables under their names."""
        rows = (self._startup, self._findings, self._telemetry)
        frames = {collected.table.name: collected.frame() for collected in rows}
        return {**frames, DIFFERENCES.name: difference_frame(self._launches, self._config)}

    def _find(
        self, level: str, server: str, launch: int, finding: Finding, cell: CellId | None = None
    ) -> None:
        self._findings.add(
            level=level,
            server=server,
            launch=launch,
            workload=None if cell is None else cell.workload,
            concurrency=None if cell is None else cell.concurrency,
            repeat=None if cell is None else cell.repeat,
            code=finding.code.value,
            sentence=finding.code.sentence,
            count=finding.count,
            detail=finding.detail,
        )


def _devices(cell: CellRecord) -> Iterator[dict[str, Value]]:
    """A row a device that was sampled."""
    empty: dict[str, Value] = dict.fromkeys(TELEMETRY.names[6:])  # the first six name the cell
    if cell.host is not None:
        yield {**empty, **_host(cell.host)}
    for gpu in cell.gpus:
        yield {**empty, **_gpu(gpu)}


def _host(host: HostLoad) -> dict[str, Value]:
    return {
        "device": HOST,
        "samples": host.samples,
        "busy_share": host.busy_share.mean,
        "foreign_share": host.foreign_share.mean,
        "foreign_share_high": host.foreign_share.high,
    }


def _gpu(gpu: GpuLoad) -> dict[str, Value]:
    reasons = gpu.throttle_reasons
    foreign, held = gpu.foreign_utilisation, gpu.foreign_memory_bytes
    return {
        "device": gpu.gpu,
        "samples": gpu.samples,
        "busy_share": None if gpu.utilisation is None else gpu.utilisation.mean,
        "foreign_share": None if foreign is None else foreign.mean,
        "foreign_share_high": None if foreign is None else foreign.high,
        **_spread("sm_clock_{}_mhz", gpu.sm_clock_mhz),
        **_spread("power_{}_w", gpu.power_w),
        **_spread("temperature_{}_c", gpu.temperature_c),
        **_spread("memory_{}_bytes", gpu.memory_used_bytes),
        "foreign_memory_high_bytes": None if held is None else held.high,
        "energy_j": gpu.energy_j,
        "throttled_share": gpu.throttled_share,
        "throttle_reasons": None if reasons is None else ", ".join(reasons),
    }


def _spread(name: str, spread: Spread | None) -> dict[str, Value]:
    values = {} if spread is None else spread.model_dump()
    return {name.format(which): values.get(which) for which in ("low", "mean", "high")}
