from typing import Any

import pandas as pd
import pytest

from ddtree_bench.config import CLASSES, Config
from ddtree_bench.tables.choice import Choices
from ddtree_bench.tables.panel import Panel
from ddtree_bench.tables.rounds import Rounds

DRAFTING: dict[str, Any] = {"model": "m", "drafter": "d"}
SERVERS: dict[str, dict[str, Any]] = {
    "ar": {"model": "m"},
    "chain-8": {**DRAFTING, "algorithm": "DFLASH", "block_size": 8},
    "tree-7": {**DRAFTING, "algorithm": "DDTREE", "budget": 7},
    "tree-15": {**DRAFTING, "algorithm": "DDTREE", "budget": 15},
}
CONFIG = Config.model_validate(
    {
        "run": "choice",
        "servers": SERVERS,
        "workloads": {name: {"class": name, "prompts": "p.jsonl"} for name in CLASSES},
    }
)


def choices(
    seconds: dict[tuple[str, int], float], prompts: int = 8, loads: dict[int, range] | None = None
) -> pd.DataFrame:
    """The table, from the seconds per token of each server in odd (1) and even (0) rounds.

    `loads`: the prompts' numbers at each concurrency; by default `prompts` at 1.
    """
    rows = [
        {"server": server, "launch": launch, "workload_class": name, "concurrency": level,
         "unit": f"{name}/{prompt:02}",
         "s_per_token": seconds[server, launch % 2] * (1 + 0.01 * (prompt % 3) * launch)}
        for server in SERVERS for launch in (1, 2, 3, 4) for name in CLASSES
        for level, asked in (loads or {1: range(prompts)}).items() for prompt in asked
    ]  # fmt: skip
    units = pd.DataFrame(rows)
    cells = units.assign(status="ok", started_unix_s=units["launch"].astype(float))
    return Choices(CONFIG, units, Panel(units, "s_per_token"), Rounds(cells)).frame()


LUCKY = {
    ("ar", 1): 0.02, ("ar", 0): 0.02, ("chain-8", 1): 0.01, ("chain-8", 0): 0.01,
    # each tree is fast in the rounds of one kind only
    ("tree-7", 1): 0.005, ("tree-7", 0): 0.010, ("tree-15", 1): 0.010, ("tree-15", 0): 0.005,
}  # fmt: skip


def only(frame: pd.DataFrame, **where: object) -> pd.Series:
    for name, value in where.items():
        frame = frame[frame[name] == value]
    (row,) = (row for _, row in frame.iterrows())
    return row


def test_luck_in_the_picking_rounds_is_not_paid_out() -> None:
    """What was fastest in the odd rounds is judged in the even ones, and the other way round."""
    found = choices(LUCKY)
    for split, picked in (("first", "tree-7"), ("second", "tree-15")):
        row = only(found, split=split, candidate=picked, relation="baseline")
        assert row["picked"]
        # 0.010 s against plain's 0.020 s, although it took 0.005 s where it was picked
        assert row["speedup"] == pytest.approx(2.0)
        assert (row["picked_on"], row["n_prompts"], row["n_launches"]) == (20, 20, 2)
        assert row["speedup_low"] < 2.0 < row["speedup_high"]


def test_every_tree_meets_three_opponents() -> None:
    """Plain decoding, the chain of equal width where there is one, and the best chain."""
    found = choices(LUCKY)
    pairs = found[found["split"] == "first"][["candidate", "relation", "reference"]]
    assert [tuple(pair) for pair in pairs.to_numpy()] == [
        ("tree-7", "baseline", "ar"),
        ("tree-7", "equal width", "chain-8"),
        ("tree-7", "best chain", "chain-8"),
        ("tree-15", "baseline", "ar"),
        ("tree-15", "best chain", "chain-8"),
    ]
    assert found[found["picked"]]["candidate"].unique().tolist() == ["tree-7", "tree-15"]


def test_too_few_prompts_make_no_choice() -> None:
    """Six prompts a class are three a half: 15 of 20; the table says so and holds no ratio."""
    found = choices(LUCKY, prompts=6)
    assert found["candidate"].isna().all()
    assert (
        found["detail"].tolist()
        == ["no choice is made: 15 prompts to choose, at least 20 needed"] * 2
    )


def test_halves_share_no_prompt_and_no_round() -> None:
    """What is slow in even rounds only moves the judgement of one split only."""
    base = choices(LUCKY)
    slow = {**LUCKY, ("ar", 0): 0.04}  # only in even rounds: only the first split judges there
    moved = choices(slow)
    for split, factor in (("first", 2.0), ("second", 1.0)):
        where = {"split": split, "candidate": "tree-7", "relation": "baseline"}
        ratio = only(moved, **where)["speedup"] / only(base, **where)["speedup"]
        assert ratio == pytest.approx(factor)


def test_prompts_are_halved_at_each_concurrency() -> None:
    """Those asked at 1 are every second one of those at 8: still halves of 4 a class, not all."""
    found = choices(LUCKY, loads={1: range(0, 16, 2), 8: range(16)})
    for level, of_half in ((1, 5 * 4), (8, 5 * 8)):
        rows = found[found["concurrency"] == level]
        assert set(rows["picked_on"]) == set(rows["n_prompts"]) == {of_half}
