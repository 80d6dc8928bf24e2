import math

import pytest

from ddtree_bench.columns import NOT_MEASURED, TABLES, Column, Table

EVERY_COLUMN = [
    pytest.param(table, column, id=f"{table.name}.{column.name}")
    for table in TABLES.values()
    for column in table.columns
]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_tables_are_consistent(table: Table) -> None:
    """Names are distinct and rows are ordered by columns that exist."""
    assert len(set(table.names)) == len(table.names)
    assert set(table.keys) <= set(table.names)
    assert table.row


@pytest.mark.parametrize(("table", "column"), EVERY_COLUMN)
def test_columns_say_what_they_are(table: Table, column: Column) -> None:
    """Every column has words, a number has a unit, and a name's unit is the column's."""
    assert column.header
    assert column.formula
    assert (column.unit != "") >= (column.kind == "number")
    if column.name.endswith("_per_s") and not column.name.endswith("tok_per_s"):
        assert column.unit == "1/s"
    elif column.name.endswith("_s") and not column.name.endswith("tok_per_s"):
        assert column.unit == "s"
    if "tok_per_s" in column.name:
        assert column.unit == "tok/s"
    assert "|" not in column.formula  # it stands in a Markdown table


def test_seconds_are_shown_in_milliseconds() -> None:
    """The CSV holds seconds; people read milliseconds, with the unit in the label."""
    column = TABLES["requests"].column("ttft_s")
    assert (column.unit, column.label) == ("s", "Time to first token (ms)")
    assert column.show(0.0123) == "12.3"


def test_shares_are_shown_in_per_cent() -> None:
    """A share of 0.125 reads 12.5."""
    assert TABLES["classes"].column("length_share").show(0.125) == "12.5"


@pytest.mark.parametrize("missing", [None, math.nan])
def test_missing_is_a_dash_and_zero_is_zero(missing: object) -> None:
    """Not measured and measured zero never look alike."""
    column = TABLES["requests"].column("ttft_s")
    assert column.show(missing) == NOT_MEASURED
    assert column.show(0.0) == "0.0"


def test_unknown_column_is_named() -> None:
    """The error names table and column."""
    with pytest.raises(KeyError, match="table cost has no column speed"):
        TABLES["cost"].column("speed")
