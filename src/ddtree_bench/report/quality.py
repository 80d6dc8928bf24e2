"""The table of right answers."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ddtree_bench.config import CLASSES
from ddtree_bench.report.grid import INTERVAL, Grid, Row, group, head, interval, number, text
from ddtree_bench.report.tex import escape
from ddtree_bench.report.view import View, column

KINDS = {
    "boxed": "final answer, boxed",
    "calls": "expected tool calls",
    "contains": "expected words",
    "json": "JSON",
    "json_schema": "JSON schema",
    "number": "exact number",
    "python": "Python, parsed",
    "python_tests": "Python, tests run",
    "replayed_calls": "right calls, step by step",
    "sql": "SQL, compiled",
    "tool_call": "well-formed calls",
    "yaml": "YAML",
}
"""What a check's kind is called for people."""


def quality(view: View) -> Grid:
    """Valid answers by server, class and kind of check, and the difference to the baseline."""
    return Grid(
        "tab:quality",
        escape(
            "Answers that are what their prompt asked for, by the same check on every server. "
            "n: prompts; each counts once, by its first answer, and one that the token limit cut "
            f"is invalid. Brackets: {view.confidence} intervals, Wilson's and, for the difference "
            f"to {view.baseline} on the same prompts, Newcombe's. p: McNemar's exact test."
        ),
        rf"L{{30mm}}r{INTERVAL}{INTERVAL}r",
        (
            (
                head("Server"),
                head("n"),
                head("Valid (%)", 3),
                head("Difference (%)", 3),
                head("p"),
            ),
        ),
        tuple(_rows(view)),
    )


def _rows(view: View) -> Iterator[Row]:
    """Servers under a line that names class and check."""
    frame = view.tables["quality"]
    for workload_class in CLASSES:
        mine = frame[frame["workload_class"] == workload_class]
        for kind in sorted(mine["check_kind"].unique()):
            yield group(f"{workload_class}: {KINDS.get(kind, kind)}", 9)
            for _, row in mine[mine["check_kind"] == kind].iterrows():
                yield _row(view, row)


def _row(view: View, row: pd.Series) -> Row:
    shares = row[["share", "share_low", "share_high"]]
    differences = row[["difference", "difference_low", "difference_high"]]
    return (
        text(view.title(row["server"])),
        number(column("quality", "n"), row["n"]),
        *interval(column("quality", "share"), *shares),
        *interval(column("quality", "difference"), *differences),
        number(column("quality", "mcnemar_p"), row["mcnemar_p"]),
    )
