"""From tables and figures to the paper."""

from ddtree_bench.report.build import build_report

__all__ = ["build_report"]
