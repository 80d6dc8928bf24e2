"""Draw all figures of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ddtree_bench.charts import figures
from ddtree_bench.charts.data import read_tables
from ddtree_bench.charts.style import report_style, save
from ddtree_bench.config import Config

FIGURES: Final[dict[str, figures.Draw]] = {
    "throughput": figures.throughput,
    "speedup": figures.speedup,
    "acceptance": figures.acceptance,
    "histogram": figures.histogram,
    "cost": figures.cost,
    "load": figures.load,
    "original": figures.original,
}
"""Every figure under its name, which is also its file's."""


def draw_figures(tables_folder: Path, figures_folder: Path, config: Config) -> None:
    """Write every figure as `NAME.pdf` and the rows that it shows as `NAME.csv`."""
    tables = read_tables(tables_folder)
    figures_folder.mkdir(parents=True, exist_ok=True)
    with report_style():
        for name, draw in FIGURES.items():
            drawing = draw(tables, config)
            save(drawing.figure, figures_folder / f"{name}.pdf")
            drawing.data.to_csv(figures_folder / f"{name}.csv", index=False)


def draw_picture(name: str, tables_folder: Path, config: Config, path: Path) -> None:
    """Write one figure as PNG, for pages that are read on a screen."""
    with report_style():
        drawing = FIGURES[name](read_tables(tables_folder), config)
        save(drawing.figure, path)
