import csv
from pathlib import Path
from typing import Any

import pytest

from ddtree_bench.columns import CELLS, ORIGINAL, REQUESTS, TABLES
from ddtree_bench.config import Config
from ddtree_bench.tables import build_tables, write_tables
from ddtree_bench.tables.rows import Rows, typed
from ddtree_bench.tables.write import PUBLISHED, csv_text, data_dictionary


def test_every_table_is_a_file_with_its_header(config: Config, tmp_path: Path) -> None:
    """An empty run, too, leaves every CSV with its header line and the data dictionary."""
    write_tables(build_tables([], config), tmp_path)
    for name, table in TABLES.items():
        with (tmp_path / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            assert next(csv.reader(file)) == list(table.names)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == data_dictionary()


def test_published_figures_stand_beside_the_tables(config: Config, tmp_path: Path) -> None:
    """Charts and report find them in the folder of the tables, byte for byte."""
    notes = tmp_path / "notes.csv"
    notes.write_text("config,prompt_id\n", encoding="utf-8")
    write_tables(build_tables([], config), tmp_path / "tables", notes)
    write_tables(build_tables([], config), tmp_path / "default")
    assert (tmp_path / "tables/published.csv").read_bytes() == notes.read_bytes()
    assert (tmp_path / "default/published.csv").read_bytes() == PUBLISHED.read_bytes()


def test_same_input_same_bytes(config: Config, two_rounds: Any, tmp_path: Path) -> None:
    """Two aggregations of one run differ in nothing."""
    for folder in ("a", "b"):
        write_tables(build_tables(two_rounds.folders, config), tmp_path / folder)
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_numbers_are_written_to_nine_digits() -> None:
    """Longer tails depend on the order of a sum and would change bytes without a reason."""
    row: dict[str, Any] = {"server": ["a"], "prompt_id": ["p"], "n": [3], "tok_per_s": [1 / 3]}
    frame = typed({**row, "tok_per_s_sd": [None], "completion_tokens": [2.0]}, ORIGINAL)
    assert csv_text(frame, ORIGINAL).splitlines()[1] == "a,p,3,0.333333333,,2"


def test_times_since_1970_keep_milliseconds() -> None:
    """Nine digits would cut a date to ten seconds."""
    values: dict[str, Any] = {name: [None] for name in CELLS.names}
    frame = typed({**values, "started_unix_s": [1795983275.0805]}, CELLS)
    assert "1795983275.080" in csv_text(frame, CELLS)


def test_flags_and_empty_cells() -> None:
    """A flag is true or false; what was not measured is nothing at all, zero is 0."""
    values: dict[str, Any] = {name: [None] for name in REQUESTS.names}
    frame = typed({**values, "check_valid": [False], "turn": [0]}, REQUESTS)
    cells = next(csv.DictReader(csv_text(frame, REQUESTS).splitlines()))
    assert {name: text for name, text in cells.items() if text} == {
        "check_valid": "false",
        "turn": "0",
    }


def test_a_row_must_name_every_column() -> None:
    """A forgotten or misspelt column is refused, not left empty."""
    rows = Rows(ORIGINAL)
    with pytest.raises(TypeError, match="'prompt', 'prompt_id'"):
        rows.add(server="a", prompt="p")
    assert rows.frame().empty
