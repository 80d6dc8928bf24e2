from pathlib import Path

import pandas as pd
import pytest
from synthetic_tables import synthetic_config, tables_of, write_tables

from ddtree_bench.charts import FIGURES, draw_figures
from ddtree_bench.hashing import file_sha256

CONFIG = synthetic_config()


@pytest.mark.parametrize("kind", ["full", "empty", "failed"])
def test_every_figure_has_its_table(tmp_path: Path, kind: str) -> None:
    """Each figure comes as PDF with the CSV of its rows, whatever was measured."""
    tables = write_tables(tables_of(kind, CONFIG), tmp_path / "tables")
    draw_figures(tables, tmp_path / "figures", CONFIG)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {f"{name}.{kind}" for name in FIGURES for kind in ("pdf", "csv")}
    rows = pd.read_csv(tmp_path / "figures" / "histogram.csv")
    assert (len(rows) > 0) == (kind == "full")


def test_same_tables_give_the_same_bytes(tmp_path: Path) -> None:
    """Two drawings of the same tables are equal to the byte."""
    tables = write_tables(tables_of("full", CONFIG), tmp_path / "tables")
    for name in ("a", "b"):
        draw_figures(tables, tmp_path / name, CONFIG)
    sums = [{p.name: file_sha256(p) for p in (tmp_path / name).iterdir()} for name in ("a", "b")]
    assert sums[0] == sums[1]
