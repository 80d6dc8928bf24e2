"""All tables of a run, from the folders of its sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ddtree_bench.columns import TABLES
from ddtree_bench.config import DRAWN, Config
from ddtree_bench.findings import FindingCode
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.tables.arrivals import ArrivalTable
from ddtree_bench.tables.budgets import Grown, budget_frame
from ddtree_bench.tables.choice import Choices
from ddtree_bench.tables.comparisons import Comparisons
from ddtree_bench.tables.conditions import ConditionTables
from ddtree_bench.tables.crossover import crossover_frame
from ddtree_bench.tables.drafts import DraftTables
from ddtree_bench.tables.draws import DrawTable, sampling_faults
from ddtree_bench.tables.latency import goodput_frame, latency_frame
from ddtree_bench.tables.lossless import FAULTY, LosslessTable
from ddtree_bench.tables.panel import Panel
from ddtree_bench.tables.pooled import PooledTables
from ddtree_bench.tables.quality import QualityTable
from ddtree_bench.tables.raw import RawTables, is_sound
from ddtree_bench.tables.read import read_sessions
from ddtree_bench.tables.rounds import Rounds
from ddtree_bench.tables.rows import ordered
from ddtree_bench.tables.tags import TagTable
from ddtree_bench.tables.turns import loops_frame, turns_frame


class Collected(NamedTuple):
    """What reading every cell once gives."""

    frames: dict[str, pd.DataFrame]
    throttled: frozenset[tuple[str, int]]
    """Launches with a cell during which a GPU slowed its clocks, as server and number."""
    grown: Grown


def build_tables(session_folders: Sequence[Path], config: Config) -> dict[str, pd.DataFrame]:
    """Every table of `columns.TABLES` under its name; sessions may be few, failed or none.

    The order of the folders does not matter.

    Raises:
        BenchError: a file of a session is missing or not as written, or its server is unknown.
    """
    frames, throttled, grown = _collected(session_folders, config)
    units = frames["units"]
    names = units["workload"] + "/" + units["prompt_id"] + "/" + units["prompt_sha256"]
    units = units.assign(unit=names)
    _add_levels(frames, units, config)
    frames["budgets"] = budget_frame(grown, frames["cost"], config)
    _add_judgements(frames, units, config, throttled)
    servers = list(config.servers)
    return {name: ordered(frames[name], table, servers) for name, table in TABLES.items()}


def _add_levels(frames: dict[str, pd.DataFrame], units: pd.DataFrame, config: Config) -> None:
    """Add what each server did by itself."""
    analysis = config.analysis
    speeds = Panel(units, "s_per_token")
    pooled = PooledTables(config, frames["requests"], frames["cells"], speeds)
    frames["classes"] = pooled.classes()
    frames["overall"] = pooled.overall(frames["classes"])
    frames["load"] = pooled.load(frames["classes"])
    frames["cost"] = pooled.cost(frames["overall"])
    frames["original"] = pooled.original()
    frames["turns"] = turns_frame(pooled.requests)
    frames["loops"] = loops_frame(pooled.requests)
    frames["latency"] = latency_frame(pooled.requests, analysis.confidence)
    frames["goodput"] = goodput_frame(
        pooled.requests, pooled.sound_cells, analysis.limits, analysis.confidence
    )


def _add_judgements(
    frames: dict[str, pd.DataFrame],
    units: pd.DataFrame,
    config: Config,
    throttled: frozenset[tuple[str, int]],
) -> None:
    """Add what servers are against each other; launches that were throttled are left out."""
    launches = pd.MultiIndex.from_frame(units[["server", "launch"]])
    counted = units[~launches.isin(throttled)] if throttled else units
    speeds, rounds = Panel(counted, "s_per_token"), Rounds(frames["cells"], throttled)
    lossless = frames["lossless"]
    faulty = lossless[lossless["verdict"] == FAULTY]
    faults = {
        **sampling_faults(frames["draws"], config.analysis.baseline),
        **dict(zip(faulty["server"], faulty["verdict_detail"], strict=True)),
    }
    decoding = Panel(counted, "decode_s_per_token")
    comparisons = Comparisons(config, frames["cells"], speeds, rounds, faults, decoding)
    frames["comparisons"] = comparisons.frame(frames["classes"], frames["overall"])
    frames["crossover"] = crossover_frame(comparisons.curves())
    frames["choice"] = Choices(config, counted, speeds, rounds).frame()


def _collected(session_folders: Sequence[Path], config: Config) -> Collected:
    """The tables that are collected cell by cell, one cell at a time in memory."""
    throttled = set()
    raw, drafts, lossless = RawTables(config), DraftTables(), LosslessTable(config)
    arrivals, draws = ArrivalTable(config.analysis.confidence), DrawTable(config)
    quality, tags, conditions = QualityTable(config), TagTable(), ConditionTables(config)
    for session in read_sessions(session_folders, config):
        raw.add_launch(session.launch)
        conditions.add_launch(session.launch)
        if session.launch.server == config.analysis.baseline:
            lossless.add_logprobs(session.logprobs())
        for measured in session.cells():
            apart = _asked_apart(measured, arrivals, draws)
            if apart is not None:
                raw.add_failures(measured, session.launch)
                if is_sound(measured):
                    apart.add_cell(measured)
                continue
            raw.add_cell(measured, session.launch)
            conditions.add_cell(measured)
            if any(found.code is FindingCode.THROTTLED for found in measured.cell.findings):
                throttled.add((measured.cell.cell.server, measured.cell.cell.launch))
            if is_sound(measured):
                for table in (drafts, lossless, quality, tags):
                    table.add_cell(measured)
    frames = {**raw.frames(), **drafts.frames(), **conditions.frames()}
    frames |= {"lossless": lossless.frame(), "quality": quality.frame(), "tags": tags.frame()}
    frames |= {"arrivals": arrivals.frame(), "draws": draws.frame()}
    return Collected(frames, frozenset(throttled), drafts.grown())


def _asked_apart(
    measured: MeasuredCell, arrivals: ArrivalTable, draws: DrawTable
) -> ArrivalTable | DrawTable | None:
    """The table of a cell that asks another question than speed in a closed loop; None for others.

    It shares no row and no figure with them.
    """
    if measured.cell.cell.arrivals_per_s is not None:
        return arrivals
    return draws if measured.cell.workload_class == DRAWN else None
