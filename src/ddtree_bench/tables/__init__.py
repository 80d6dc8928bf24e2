"""From the raw records of a run to its CSV tables."""

from ddtree_bench.tables.build import build_tables
from ddtree_bench.tables.write import write_tables

__all__ = ["build_tables", "write_tables"]
