"""What the profile predicts of budgets that were not measured."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from ddtree_bench.config import Config
from ddtree_bench.records import SpecCounts, TreeCounts
from ddtree_bench.tables import build_tables
from ddtree_bench.tables.budgets import budget_frame

COLUMNS = ["server", "algorithm", "verify_width", "step_time_s", "draft_time_s"]


def cost(*rows: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=COLUMNS)


def test_a_budget_costs_its_width_and_the_servers_own_drafting(config: Config) -> None:
    """Without drafting a step takes 20 ms at 1 token and 34 at 8: 2 ms a token in between.

    Budget 3 verifies 4 tokens: 26 ms + 6 of drafting; 1 + (8 + 4 + 2) ÷ 10 = 2.4 tokens a step;
    2.4 × 20 ÷ 32 = 1.5.
    """
    costs = cost(
        ("ar", "AR", 1, 0.020, None),
        ("chain", "DFLASH", 8, 0.044, 0.010),
        ("tree", "DDTREE", 8, 0.040, 0.006),
    )
    frame = budget_frame({"tree": (pd.array([8, 4, 2, 1]).to_numpy(int), 10)}, costs, config)
    assert frame["budget"].tolist() == [1, 2, 3, 4]
    row = frame.iloc[2]
    assert row["acceptance_length"] == pytest.approx(2.4)
    assert row["step_time_s"] == pytest.approx(0.032)
    assert row["predicted_speedup"] == pytest.approx(1.5)


def test_nothing_is_predicted_from_too_little(config: Config) -> None:
    """An engine that does not tell how long it drafts, or plain decoding alone."""
    grown = {"tree": (pd.array([8, 4]).to_numpy(int), 10)}
    silent = cost(("ar", "AR", 1, 0.02, None), ("tree", "DDTREE", 8, 0.04, None))
    assert budget_frame(grown, silent, config).empty
    assert budget_frame(grown, silent.iloc[:1], config).empty


def test_drafting_is_a_part_of_a_step(
    config: Config, run: Any, records: dict[str, Callable[..., Any]]
) -> None:
    """5 steps of 4 tokens, 10 ms a token; 50 ms of drafting are 10 of a step's 40: a quarter."""
    spec = SpecCounts(verify_steps=5, accepted_drafts=15, histogram=(0, 0, 0, 5), drafting_s=0.05)
    tree = TreeCounts(verify_width=8, nodes_by_depth=(35,), accepted_by_node=(5, 5, 5))
    for server, more in (("ar", {}), ("tree", {"spec": spec, "tree": tree})):
        cell = records["id"](server, 1, "short")
        requests = tuple(records["request"](cell, name, 0.01, **more) for name in "ab")
        run.add(server, 1, [records["cell"](cell, requests)])
    tables = build_tables(run.folders, config)
    row = tables["cost"].set_index("server").loc["tree"]
    assert (row["draft_time_s"], row["draft_share"]) == (pytest.approx(0.01), pytest.approx(0.25))
    assert pd.isna(tables["cost"].set_index("server").loc["ar", "draft_share"])
    # 30 ms without drafting at width 8, 10 ms of plain decoding at width 1
    budgets = tables["budgets"].set_index("budget")
    assert budgets.loc[3, "acceptance_length"] == pytest.approx(4)
    assert budgets.loc[3, "step_time_s"] == pytest.approx(0.01 + 0.01 + 3 * 0.02 / 7)
