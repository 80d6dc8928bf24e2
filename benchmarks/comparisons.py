"""Seconds to compare 10 servers over 6 launches and 200 prompts: all intervals, tests, verdicts.

PYTHONPATH=src python benchmarks/comparisons.py
"""

from __future__ import annotations

import itertools
import time

import numpy as np
import pandas as pd

from ddtree_bench.columns import CLASSES as CLASSES_TABLE
from ddtree_bench.columns import OVERALL
from ddtree_bench.config import CLASSES, Config
from ddtree_bench.tables.comparisons import Comparisons
from ddtree_bench.tables.panel import Panel
from ddtree_bench.tables.rounds import Rounds
from ddtree_bench.tables.rows import frame_of

CHAINS, TREES, LAUNCHES, PROMPTS = 4, 5, 6, 200


def config() -> Config:
    """Plain decoding, chains and trees: every tree is compared with every chain."""
    chain = {"model": "m", "drafter": "d", "algorithm": "DFLASH", "block_size": 16}
    tree = {**chain, "algorithm": "DDTREE"}
    servers = {
        "ar": {"model": "m"},
        **{f"chain{n}": chain for n in range(CHAINS)},
        **{f"tree{n}": {**tree, "budget": 15 + n} for n in range(TREES)},
    }
    workloads = {name: {"class": name, "prompts": "p.jsonl"} for name in CLASSES}
    protocol = {"launches": LAUNCHES}
    return Config.model_validate(
        {"run": "made-up", "servers": servers, "workloads": workloads, "protocol": protocol}
    )


def units(servers: Config) -> pd.DataFrame:
    """Made-up seconds per token of every server, launch, class and prompt."""
    each = range(PROMPTS // len(CLASSES))
    rows = itertools.product(servers.servers, range(1, LAUNCHES + 1), CLASSES, each)
    frame = pd.DataFrame(rows, columns=["server", "launch", "workload_class", "prompt"])
    noise = np.random.default_rng(1).lognormal(-4, 0.1, len(frame))
    names = frame["workload_class"] + "/" + frame["prompt"].astype(str)
    return frame.assign(concurrency=1, unit=names, s_per_token=noise)


def cells(frame: pd.DataFrame) -> pd.DataFrame:
    """The cells of these units, all side by side."""
    keys = ["server", "launch", "workload_class", "concurrency"]
    return frame[keys].drop_duplicates().assign(status="ok", started_unix_s=frame["launch"] * 60.0)


def main() -> None:
    """Time the table of comparisons."""
    run = config()
    frame = units(run)
    asked = cells(frame)
    start = time.perf_counter()
    judge = Comparisons(run, asked, Panel(frame, "s_per_token"), Rounds(asked))
    found = judge.frame(frame_of([], CLASSES_TABLE), frame_of([], OVERALL))
    seconds = time.perf_counter() - start
    print(f"{len(run.servers)} servers, {LAUNCHES} launches, {PROMPTS} prompts: "
          f"{len(found)} comparisons in {seconds:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
