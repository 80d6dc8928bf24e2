"""The report's table of sampled answers."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from synthetic_tables import synthetic_config, tables_of, write_tables

from ddtree_bench.charts.data import read_tables
from ddtree_bench.report.sampling import sampling
from ddtree_bench.report.view import View

CONFIG = synthetic_config()
Make = Callable[..., View]


@pytest.fixture
def view(tmp_path: Path) -> Make:
    def make(**changed: pd.DataFrame) -> View:
        tables = tables_of("full", CONFIG) | changed
        return View(read_tables(write_tables(tables, tmp_path)), CONFIG)

    return make


def test_a_row_a_server_with_the_least_p_of_its_prompts(view: Make) -> None:
    """All prompts together are one row; single ones show by the smallest p among them."""
    draws = tables_of("full", CONFIG)["draws"]
    draws.loc[(draws["server"] == "ddtree-b7") & (draws["prompt_id"] == "once-upon"), "p_holm"] = (
        0.2
    )
    rows = sampling(view(draws=draws)).rows
    assert len(rows) == 5
    assert [cell.tex for cell in rows[4]][7:9] == ["1.0000", "0.2000"]


def test_one_prompt_that_differs_marks_the_server(view: Make) -> None:
    """A fault after one prompt is a fault, whatever the sum over all prompts says."""
    draws = tables_of("full", CONFIG)["draws"]
    one = (draws["server"] == "ddtree-b7") & (draws["prompt_id"] == "once-upon")
    draws.loc[one, "verdict"] = "differs"
    rows = sampling(view(draws=draws)).rows
    assert ["failed" in row[-1].tex for row in rows] == [False] * 4 + [True]
