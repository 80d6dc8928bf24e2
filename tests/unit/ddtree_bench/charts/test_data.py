from pathlib import Path

import pytest
from synthetic_tables import empty_tables, full_tables, synthetic_config, write_tables

from ddtree_bench.charts.data import lowest_concurrency, read_tables
from ddtree_bench.errors import BenchError


def test_texts_stay_texts_and_numbers_are_numbers(tmp_path: Path) -> None:
    """An empty text is "", an empty number NaN, and a server called NA stays one."""
    tables = full_tables(synthetic_config())
    tables["servers"].loc[0, "server"] = "NA"
    read = read_tables(write_tables(tables, tmp_path))
    assert read["servers"]["server"][0] == "NA"
    assert read["servers"]["drafter"][0] == ""
    assert read["cost"]["block_size"].isna().sum() == 1  # plain decoding has no block
    assert read["overall"]["tok_per_s"].dtype == float


def test_missing_table_is_an_error(tmp_path: Path) -> None:
    """A table that is not there is named, with what makes it."""
    folder = write_tables(empty_tables(), tmp_path)
    (folder / "classes.csv").unlink()
    with pytest.raises(BenchError, match=r"table classes is missing(?s:.)*aggregate"):
        read_tables(folder)


def test_missing_column_is_an_error(tmp_path: Path) -> None:
    """A column that is not there is named, never read as empty."""
    tables = empty_tables()
    del tables["overall"]["tok_per_s"]
    with pytest.raises(BenchError, match="table overall lacks the columns tok_per_s"):
        read_tables(write_tables(tables, tmp_path))


def test_published_figures_are_optional(tmp_path: Path) -> None:
    """A run without published figures has an empty table of them."""
    folder = write_tables(empty_tables(), tmp_path)
    (folder / "published.csv").unlink()
    assert read_tables(folder)["published"].empty


def test_lowest_concurrency() -> None:
    """Only the rows of the lowest concurrency stay; no rows stay no rows."""
    table = full_tables(synthetic_config())["overall"]
    table["concurrency"] = [4.0, 1.0, 1.0, 4.0, 8.0]
    assert list(lowest_concurrency(table).index) == [1, 2]
    assert lowest_concurrency(table[:0]).empty
