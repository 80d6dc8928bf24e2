"""Whether servers that sample draw from plain decoding's distribution."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ddtree_bench.columns import POOLED
from ddtree_bench.report.grid import Cell, Grid, Row, failed, head, number, text
from ddtree_bench.report.tex import escape
from ddtree_bench.report.view import View, column

_NUMBERS = ("prefixes", "tokens", "chi_square", "df", "p_holm")


def sampling(view: View) -> Grid:
    """A row a server and workload with draws."""
    return Grid(
        "tab:sampling",
        escape(
            "Answers drawn many times at a temperature above 0, against those of "
            f"{view.baseline}: chi-square of the next tokens at each prefix that both sides "
            "reached, summed over prefixes and prompts. Draws: of the server / of "
            f"{view.baseline}, whose own row tests one half of its draws against the other. p: "
            "adjusted by Holm's method over all tests of all servers; the last one is the smallest "
            "of single prompts."
        ),
        r"L{26mm}L{20mm}rrrrrrrL{24mm}",
        (
            tuple(
                map(
                    head,
                    ("Server", "Workload", "Draws", "Prefixes", "Tokens", "Chi-square", "df",
                     "p (Holm)", "least", "Sampler"),
                )
            ),
        ),
        tuple(_rows(view)),
    )  # fmt: skip


def _rows(view: View) -> Iterator[Row]:
    frame = view.tables["draws"]
    single = frame[frame["prompt_id"] != POOLED]
    for _, row in frame[frame["prompt_id"] == POOLED].iterrows():
        prompts = single[
            (single["server"] == row["server"]) & (single["workload"] == row["workload"])
        ]
        yield (
            text(view.title(row["server"])),
            text(row["workload"]),
            text(f"{row['n']:.0f}/{row['n_reference']:.0f}"),
            *(number(column("draws", name), row[name]) for name in _NUMBERS),
            number(column("draws", "p_holm"), prompts["p_holm"].min()),
            _verdict(row, prompts),
        )


def _verdict(row: pd.Series, prompts: pd.DataFrame) -> Cell:
    """The verdict of all prompts, or of one that alone tells a difference."""
    if "differs" in {row["verdict"], *prompts["verdict"]}:
        return failed("differs", 1)
    return text(row["verdict"])
