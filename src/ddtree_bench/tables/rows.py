"""Rows collected column by column, and frames that hold exactly a table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from ddtree_bench.columns import POOLED, Column, Table
from ddtree_bench.config import CLASSES, DRAWN, FIXED_LENGTH

Value = str | int | float | bool | None

_CLASS_PLACES: Final = {
    name: place for place, name in enumerate((POOLED, *CLASSES, "original", FIXED_LENGTH, DRAWN))
}
_TYPES: Final = {"text": "object", "count": "Int64", "number": "float64", "flag": "boolean"}


class Rows:
    """A table under construction; `add` takes every column of it by name."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._columns: dict[str, list[Value]] = {name: [] for name in table.names}

    def add(self, **values: Value) -> None:
        """Append a row; a column that is left out or unknown is a mistake of the caller."""
        if values.keys() != self._columns.keys():
            odd = values.keys() ^ self._columns.keys()
            raise TypeError(f"table {self.table.name}: columns {sorted(odd)} missing or unknown")
        for name, value in values.items():
            self._columns[name].append(value)

    def frame(self) -> pd.DataFrame:
        """The rows so far, typed."""
        return typed(self._columns, self.table)


def typed(columns: Mapping[str, Sequence[Value]], table: Table) -> pd.DataFrame:
    """A frame of exactly the table's columns in their order; None becomes an empty cell."""
    return pd.DataFrame(
        {column.name: _series(columns[column.name], column) for column in table.columns}
    )


def _series(values: Sequence[Value], column: Column) -> pd.Series:
    return pd.Series(values, dtype=_TYPES[column.kind])


def frame_of(rows: Iterable[Mapping[str, Value]], table: Table) -> pd.DataFrame:
    """A frame from rows that each name every column."""
    collected = Rows(table)
    for row in rows:
        collected.add(**row)
    return collected.frame()


def grouped(frame: pd.DataFrame, keys: Sequence[str]) -> dict[Any, pd.DataFrame]:
    """The rows of each combination of keys that occurs, under the tuple of its values."""
    return dict(list(frame.groupby(list(keys))))


def ordered(frame: pd.DataFrame, table: Table, servers: Sequence[str]) -> pd.DataFrame:
    """The rows in the table's order: servers as configured, classes as always, else by value."""
    by_server = {name: place for place, name in enumerate(servers)}

    def place(column: pd.Series) -> pd.Series:
        if column.name in ("server", "candidate", "reference"):
            return column.map(by_server).astype("int64")
        return column.map(_CLASS_PLACES) if column.name == "workload_class" else column

    return frame.sort_values(list(table.keys), key=place, kind="stable", ignore_index=True)
