"""Whether a further round is needed: the widths of intervals decide, never what they say.

Stopping as soon as an interval leaves 1 would find differences where there are none; its width
knows nothing of its place. All sessions of a round see the same earlier rounds and decide alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from ddtree_bench.columns import POOLED
from ddtree_bench.config import Config
from ddtree_bench.layout import RunLayout
from ddtree_bench.rounds.schedule import schedule_of
from ddtree_bench.tables.build import build_tables


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
    turns = [turn for turn in schedule_of(config) if turn.launch < launch]
    folders = [layout.session(turn.server, turn.launch) for turn in turns]
    outputs = [folder / name for folder in folders for name in ("launch.json", "cells.jsonl")]
    if not all(path.exists() for path in outputs):
        return None  # out of order, or a session was lost: nothing is saved by guessing
    widths = list(pooled_widths(build_tables(folders, config)["comparisons"]))
    if not widths or any(width is None or width > goal.width for width in widths):
        return None
    widest = max(width for width in widths if width is not None)
    return f"widest interval {widest:.1%} of its speed-up, {goal.width:.1%} asked for"


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
