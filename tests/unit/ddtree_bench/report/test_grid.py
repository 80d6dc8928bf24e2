import pytest

from ddtree_bench.columns import TABLES
from ddtree_bench.report.grid import Grid, failed, group, head, interval, number, text
from ddtree_bench.report.tex import Tex

SPEED = TABLES["classes"].column("tok_per_s")


def test_missing_is_a_dash_and_zero_is_zero() -> None:
    """Not measured and measured zero look different."""
    assert number(SPEED, None).tex == "–"
    assert number(SPEED, float("nan")).tex == "–"
    assert number(SPEED, 0.0).tex == "0.0"
    assert text("").tex == "–"


def test_interval_has_the_decimals_of_its_value() -> None:
    """Value and ends stand in three cells, so that all rows align."""
    cells = interval(SPEED, 70.149, 67.5, 72.96)
    assert [cell.tex for cell in cells] == ["70.1", "[67.5,{}", "73.0]"]


def test_value_without_interval_has_no_brackets() -> None:
    """One launch gives a value only."""
    assert [cell.tex for cell in interval(SPEED, 70.1, None, None)] == ["70.1", "", ""]


def test_row_of_another_width_is_refused() -> None:
    """A wrong number of cells is found here, not by TeX."""
    heads = ((head("a"), head("b", 2)),)
    Grid("t", Tex(""), "lrr", heads, (group("all", 3), (text("x"), failed("died", 2))))
    with pytest.raises(ValueError, match="t: 2 columns, not 3"):
        Grid("t", Tex(""), "lrr", heads, ((text("x"), text("y")),))


def test_cells_are_escaped() -> None:
    """Titles and reasons are text, whatever they hold."""
    assert failed("100 % & more", 2).tex == r"\multicolumn{2}{l}{\failed{100 \% \& more}}"
    assert group("a_b", 1)[0].tex == r"\textit{a\_b}"
