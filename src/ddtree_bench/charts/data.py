"""The tables as charts and report read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ddtree_bench.columns import TABLES, Table
from ddtree_bench.config import Config
from ddtree_bench.errors import BenchError

Tables = Mapping[str, pd.DataFrame]
"""Data frames under their tables' names: texts "" and numbers NaN where nothing was measured."""

PUBLISHED = ("source", "system", "config", "prompt_id", "tok_per_s")
"""Columns of the figures that others published."""

_TOO_LONG = frozenset({"requests", "units"})  # nobody draws these row by row


def read_tables(folder: Path) -> Tables:
    """All tables of a run that charts and report use.

    Raises:
        BenchError: a table or a column is missing.
    """
    tables = {
        name: _typed(_text(folder / f"{name}.csv", table.names), table)
        for name, table in TABLES.items()
        if name not in _TOO_LONG
    }
    published = folder / "published.csv"
    notes = _text(published, PUBLISHED) if published.exists() else pd.DataFrame(columns=PUBLISHED)
    notes["tok_per_s"] = pd.to_numeric(notes["tok_per_s"])
    return {**tables, "published": notes}


def lowest_concurrency(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the lowest concurrency that was measured."""
    lowest: pd.DataFrame = frame[frame["concurrency"] == frame["concurrency"].min()]
    return lowest


def titles(config: Config) -> dict[str, str]:
    """Each server's name in tables and charts, in the configuration's order."""
    return {name: server.title or name for name, server in config.servers.items()}


def _text(path: Path, needed: tuple[str, ...]) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise BenchError(
            f"table {path.stem} is missing", where=str(path), remedy="run the rule `aggregate`"
        ) from None
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise BenchError(
            f"table {path.stem} lacks the columns {', '.join(missing)}",
            where=str(path),
            remedy="run the rule `aggregate` again: the tables are older than this code",
        )
    return frame


def _typed(frame: pd.DataFrame, table: Table) -> pd.DataFrame:
    for column in table.columns:
        if column.kind in ("count", "number"):
            frame[column.name] = pd.to_numeric(frame[column.name]).astype(float)
    return frame
