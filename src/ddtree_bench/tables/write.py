"""Tables as CSV files, and the page that explains their columns."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ddtree_bench.columns import TABLES, Column, Table

DIGITS = 9
"""Significant digits of a number; fewer than a float has, so that equal input gives equal bytes."""


PUBLISHED = Path(__file__).resolve().parents[3] / "workflow/resources/published/original_notes.csv"
"""Figures that others published for the three prompts of the original notes."""


def write_tables(
    tables: Mapping[str, pd.DataFrame], folder: Path, published: Path = PUBLISHED
) -> None:
    """Write each table as `NAME.csv`, the data dictionary as `README.md`, `published` as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in tables.items():
        text = csv_text(frame, TABLES[name])
        (folder / f"{name}.csv").write_text(text, encoding="utf-8", newline="")
    (folder / "README.md").write_text(data_dictionary(), encoding="utf-8")
    shutil.copyfile(published, folder / "published.csv")


def csv_text(frame: pd.DataFrame, table: Table) -> str:
    """The frame as CSV: base units, empty cells where nothing was measured, Unix line ends."""
    columns = {column.name: _texts(frame[column.name], column) for column in table.columns}
    text: str = pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")
    return text


def _texts(values: pd.Series, column: Column) -> list[str | None]:
    known = values.notna()
    return [
        _text(value, column) if there else None for value, there in zip(values, known, strict=True)
    ]


def _text(value: object, column: Column) -> str:
    if isinstance(value, float) and column.kind == "number":
        # a time since 1970 needs ten digits before the point
        return f"{value:.3f}" if column.name.endswith("_unix_s") else f"{value:.{DIGITS}g}"
    return str(value).lower() if column.kind == "flag" else str(value)


def data_dictionary() -> str:
    """Markdown that explains every table and column, made from the catalogue."""
    head = (
        "# Tables\n\nMade by the rule `aggregate`; written by the catalogue in "
        "`src/ddtree_bench/columns.py`.\nUnits are as in the files. "
        "An empty cell means not measured; 0 is a measured zero.\n"
    )
    return "\n".join([head, *(_section(table) for table in TABLES.values())])


def _section(table: Table) -> str:
    lines = [
        f"## {table.name}.csv\n",
        f"A row is {table.row}.\n",
        "| column | unit | meaning |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{c.name}` | {c.unit} | {c.formula} |" for c in table.columns]
    return "\n".join(lines) + "\n"
