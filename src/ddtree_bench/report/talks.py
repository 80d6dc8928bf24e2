"""Tables of conversations turn by turn, and of tool loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd

from ddtree_bench.charts.data import lowest_concurrency
from ddtree_bench.report.grid import Cell, Grid, Row, head, number, text
from ddtree_bench.report.tex import escape
from ddtree_bench.report.view import View, column

_TURNS: Final = 4
"""Turns that are shown; later ones are in the table's file."""
_SHOWN: Final = ("tok_per_s", "ttft_p50_s", "acceptance_length")


def turns(view: View) -> Grid:
    """Speed, time to first token and acceptance of the first turns of class `multiturn`."""
    frame = lowest_concurrency(view.tables["turns"])
    talks = frame[frame["workload_class"] == "multiturn"]
    return Grid(
        "tab:turns",
        escape(
            f"Conversations of class multiturn, turns 1 to {_TURNS}, at the lowest concurrency: "
            "the prompt grows, and with a prefix cache only its new part is read. Speed: geometric "
            "mean over requests. TTFT: time to first token. Accepted: tokens that a verify step "
            "yields. Fewer conversations reach the later turns, so turns differ in "
            "what is asked; all turns are in turns.csv."
        ),
        rf"L{{24mm}}{'r' * (len(_SHOWN) * _TURNS)}",
        (
            (
                head("Server"),
                head("Speed (tok/s)", _TURNS),
                head("TTFT (ms)", _TURNS),
                head("Accepted", _TURNS),
            ),
            (head(""), *(head(str(turn + 1)) for _ in _SHOWN for turn in range(_TURNS))),
        ),
        tuple(_turn_rows(view, talks)),
    )


def _turn_rows(view: View, talks: pd.DataFrame) -> Iterator[Row]:
    for server in view.config.servers:
        mine = talks[talks["server"] == server].set_index("turn")
        if not mine.empty:
            yield text(view.title(server)), *_values(mine)


def _values(mine: pd.DataFrame) -> Iterator[Cell]:
    for name in _SHOWN:
        for turn in range(_TURNS):
            yield number(column("turns", name), mine[name].get(turn))


def loops(view: View) -> Grid:
    """How tool loops ran: their steps, what a step says, how much of it is valid."""
    names = ("loops", "steps_per_loop", "tokens_per_step", "checks", "valid_share")
    frame = lowest_concurrency(view.tables["loops"])
    return Grid(
        "tab:loops",
        escape(
            "Class agentic by workload, at the lowest concurrency. A loop is a prompt with all its "
            "steps, a step a request. Valid: of the steps that were judged, those that were a "
            "valid call or answer."
        ),
        "L{30mm}L{30mm}rrrrr",
        (
            (
                head("Server"),
                head("Workload"),
                *map(head, ("Loops", "Steps a loop", "Tokens a step", "Judged", "Valid (%)")),
            ),
        ),
        tuple(
            (
                text(view.title(row["server"])),
                text(row["workload"]),
                *(number(column("loops", name), row[name]) for name in names),
            )
            for _, row in frame.iterrows()
        ),
    )
