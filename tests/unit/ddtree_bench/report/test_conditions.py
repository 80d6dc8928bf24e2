"""What the report says of the conditions; all numbers are invented."""

from pathlib import Path

import pytest
from synthetic_tables import frame, synthetic_config, tables_of, write_tables

from ddtree_bench.charts.data import read_tables
from ddtree_bench.report import conditions
from ddtree_bench.report.grid import Grid
from ddtree_bench.report.view import View


@pytest.fixture
def view(tmp_path: Path) -> View:
    """A finished run."""
    config = synthetic_config()
    return View(read_tables(write_tables(tables_of("full", config), tmp_path)), config)


@pytest.fixture
def nothing(tmp_path: Path) -> View:
    """A run in which nothing was measured yet."""
    config = synthetic_config()
    return View(read_tables(write_tables(tables_of("empty", config), tmp_path)), config)


def rows(grid: Grid) -> list[str]:
    """Rows as TeX."""
    return [" & ".join(cell.tex for cell in row) for row in grid.rows]


def test_flags_of_a_server(view: View) -> None:
    """Two launches of six workloads; those of class short are flagged twice over."""
    first = rows(conditions.flags(view))[0].replace("{}", "").replace(r"\_", "_")
    # 2 of 12 cells were disturbed: 16.7 %; one token cut in each of the 12
    assert first.startswith("plain & 12 & 2 & 16.7 & 12 & 3.0 & ")
    assert "busy" in first
    assert "decode" in first


def test_start_up_is_the_median_over_launches(view: View) -> None:
    """1 s and 2 s: 1.5 s; a step that did not end has no seconds."""
    head, load, capture = rows(conditions.startup(view))
    assert "chain 16" in head
    assert load.endswith("& 2 & 1.50 & 0.50 & –")
    assert capture.endswith("& 2 & – & 0.50 & –")


def test_findings_are_summed_by_level(view: View) -> None:
    """A launch's and a cell's are told apart."""
    launch, cell = rows(conditions.findings(view))
    assert launch.startswith(
        "tree 15/8 & launch & decode steps ran outside the CUDA graphs & 1 & 7"
    )
    assert cell.startswith("tree 15/8 & cell & decode steps ran outside the CUDA graphs & 1 & 2")


def test_gpus_are_lowest_mean_and_highest(view: View) -> None:
    """A reading that no GPU gave is a dash, energy is per token."""
    first = rows(conditions.gpus(view))[0]
    assert first.startswith("plain & – & ")
    assert "148 / 456 / 702" in first.replace(r"\slash{}", "/").replace(r"\allowbreak{}", "")
    assert first.endswith(" & 0.0 & 2.00")


def test_the_host_in_a_sentence(view: View, nothing: View) -> None:
    """5 cells, 4 % on average; and without samples why there are none."""
    assert conditions.host(view) == (
        "The CPUs were sampled about once a second, in 5 of 53 measured cells at least once; the "
        "others were shorter. In those cells other processes took 4.0 % of all CPUs on average "
        "and 4.0 % in the worst cell."
    )
    assert conditions.host(nothing).startswith("The CPUs were not watched")


def test_differences_name_both_sides(view: View) -> None:
    """Server, opponent, fact and both values."""
    (row,) = rows(conditions.differences(view))
    assert row.startswith("tree 15/8 & chain 16 & ")
    assert row.endswith(" & 1")


def difference(server: str, fact: str, value: str, other: str) -> dict[str, str]:
    """A row of the table of differences, against plain decoding."""
    told = {"fact": fact, "value": value, "reference_value": other}
    return {"server": server, "reference": "ar", **told}


def test_differences_are_told_once_and_briefly(view: View) -> None:
    """Servers with the same difference share a row; of lists and hashes only what is needed."""
    table = frame("differences", [
        difference("dflash-b16", "identity.sizes", "[1, 2, 3, 4]", "[1, 2, 5]"),
        difference("ddtree-b15", "identity.sizes", "[1, 2, 3, 4]", "[1, 2, 5]"),
        difference("ddtree-b15", "machine.code_sha256", 64 * "a", ""),
    ])  # fmt: skip
    found = rows(conditions.differences(View({**view.tables, "differences": table}, view.config)))
    lists, code = (row.replace("{}", "") for row in found)
    assert lists.startswith("chain 16, tree 15/8 & plain & ")
    assert lists.endswith(" & 4 values, alone: 3, 4 & 3 values, alone: 5")
    assert code.count("a" * 12) == 1
    assert "a" * 13 not in code.replace(r"\allowbreak", "")


def test_nothing_measured_is_empty_not_wrong(nothing: View) -> None:
    """A row a server with no cells; the other tables have no rows."""
    assert [row.split(" & ")[1] for row in rows(conditions.flags(nothing))] == ["0"] * 5
    for grid in (conditions.startup, conditions.findings, conditions.gpus, conditions.differences):
        assert grid(nothing).rows == ()


def test_a_hostile_example_is_cut(view: View) -> None:
    """A line of a log may run to thousands of letters."""
    table = frame("findings", [{"level": "cell", "server": "ar", "launch": 1, "code": "x",
                                "sentence": "s", "count": 1, "detail": "y" * 999}])  # fmt: skip
    (row,) = rows(conditions.findings(View({**view.tables, "findings": table}, view.config)))
    assert row.count("y") < 250
