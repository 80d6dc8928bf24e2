"""Whether a further round is needed: the widths of intervals decide, never what they say.

Stopping as soon as an interval leaves 1 would find differences where there are none; its width
knows nothing of its place. All sessions of a round see the same earlier rounds and decide alike.

Intervals are narrow more often where noise was underestimated by chance, so that one that ended its
own run would hold the truth too rarely (benchmarks/power.py). The rounds that decide are therefore
followed by one more in any case: a round is left out if those before the last one were enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from ddtree_bench.columns import POOLED
from ddtree_bench.config import Config
from ddtree_bench.layout import RunLayout
from ddtree_bench.records import Launch
from ddtree_bench.rounds.schedule import schedule_of
from ddtree_bench.status import Status
from ddtree_bench.tables.build import build_tables

OUTPUTS = ("launch.json", "cells.jsonl")


def reason_not_needed(config: Config, launch: int, results: Path) -> str | None:
    """Why this round adds nothing that is wanted; None if it is needed.

    Args:
        config: of the run.
        launch: number of the round.
        results: folder of all runs.

    Raises:
        BenchError: an earlier session's files are not as written.
    """
    goal = config.protocol.adaptive
    if goal is None or launch <= config.protocol.launches:
        return None
    layout = RunLayout.of(config.run, results)
    earlier = [turn for turn in schedule_of(config) if turn.launch < launch]
    folders = {turn: layout.session(turn.server, turn.launch) for turn in earlier}
    outputs = [folder / name for folder in folders.values() for name in OUTPUTS]
    if not all(path.exists() for path in outputs):
        return None  # out of order, or a session was lost: nothing is saved by guessing
    last = Launch.model_validate_json((folders[earlier[-1]] / "launch.json").read_bytes())
    if last.status is Status.NOT_NEEDED:
        return last.detail
    decisive = [folder for turn, folder in folders.items() if turn.launch <= last_decisive(launch)]
    widest = widest_interval(build_tables(decisive, config)["comparisons"])
    if widest is None or widest > goal.width:
        return None
    return f"widest interval {widest:.1%} of its speed-up, {goal.width:.1%} asked for"


def last_decisive(launch: int) -> int:
    """The last of the rounds that tell whether this one is needed."""
    return launch - 2


def widest_interval(comparisons: pd.DataFrame) -> float | None:
    """The largest of `pooled_widths`; None if there is none, or an interval is lacking."""
    widths = list(pooled_widths(comparisons))
    known = [width for width in widths if width is not None]
    return max(known) if known and len(known) == len(widths) else None


def pooled_widths(comparisons: pd.DataFrame) -> Iterator[float | None]:
    """Width ÷ speed-up of each pooled comparison with the baseline; None: no interval yet.

    A server without a single good launch has no part in it: more rounds would hardly help.
    """
    kinds = zip(comparisons["relation"], comparisons["workload_class"], strict=True)
    wanted = [kind == ("baseline", POOLED) for kind in kinds]
    for row in comparisons[wanted].to_dict("records"):
        if row["n_launches"] > 0:
            width = (row["speedup_high"] - row["speedup_low"]) / row["speedup"]
            yield None if pd.isna(width) else float(width)
