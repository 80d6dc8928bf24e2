"""From tables to figures, each with the CSV that it was drawn from."""

from ddtree_bench.charts.data import Tables, read_tables
from ddtree_bench.charts.draw import FIGURES, draw_figures

__all__ = ["FIGURES", "Tables", "draw_figures", "read_tables"]
