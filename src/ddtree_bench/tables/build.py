"""All tables of a run, from the folders of its sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ddtree_bench.columns import TABLES
from ddtree_bench.config import Config
from ddtree_bench.tables.comparisons import Comparisons
from ddtree_bench.tables.drafts import DraftTables
from ddtree_bench.tables.lossless import LosslessTable
from ddtree_bench.tables.panel import Panel
from ddtree_bench.tables.pooled import PooledTables
from ddtree_bench.tables.raw import RawTables, is_sound
from ddtree_bench.tables.read import read_sessions
from ddtree_bench.tables.rows import ordered


def build_tables(session_folders: Sequence[Path], config: Config) -> dict[str, pd.DataFrame]:
    """Every table of `columns.TABLES` under its name; sessions may be few, failed or none.

    The order of the folders does not matter.

    Raises:
        BenchError: a file of a session is missing or not as written, or its server is unknown.
    """
    frames = _collected(session_folders, config)
    units = frames["units"]
    names = units["workload"] + "/" + units["prompt_id"] + "/" + units["prompt_sha256"]
    speeds = Panel(units.assign(unit=names), "s_per_token")
    pooled = PooledTables(config, frames["requests"], frames["cells"], speeds)
    frames["classes"] = pooled.classes()
    frames["overall"] = pooled.overall(frames["classes"])
    frames["cost"] = pooled.cost(frames["overall"])
    frames["original"] = pooled.original()
    comparisons = Comparisons(config, frames["cells"], speeds)
    frames["comparisons"] = comparisons.frame(frames["classes"], frames["overall"])
    servers = list(config.servers)
    return {name: ordered(frames[name], table, servers) for name, table in TABLES.items()}


def _collected(session_folders: Sequence[Path], config: Config) -> dict[str, pd.DataFrame]:
    """The tables that are collected cell by cell, so that one cell at a time is in memory."""
    raw, drafts, lossless = RawTables(config), DraftTables(), LosslessTable(config)
    for session in read_sessions(session_folders, config):
        raw.add_launch(session.launch)
        for measured in session.cells():
            raw.add_cell(measured, session.launch)
            if is_sound(measured):
                drafts.add_cell(measured)
                lossless.add_cell(measured)
    return {**raw.frames(), **drafts.frames(), "lossless": lossless.frame()}
