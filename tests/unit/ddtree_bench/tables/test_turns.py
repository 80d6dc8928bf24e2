"""Conversations by turn and tool loops by steps."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ddtree_bench.config import Config
from ddtree_bench.records import Check
from ddtree_bench.tables.build import build_tables

RIGHT, WRONG = Check(kind="tool_call", valid=True), Check(kind="tool_call", valid=False)


@pytest.fixture
def config() -> Config:
    servers = {"ar": {"model": "m"}, "chain": {"model": "m", "algorithm": "DFLASH", "drafter": "d"}}
    workloads = {
        name: {"class": name, "prompts": f"{name}.jsonl"}
        for name in ("short", "multiturn", "agentic")
    }
    return Config.model_validate({"run": "story", "servers": servers, "workloads": workloads})


def session(run: Any, records: Any, server: str, **requests: list[tuple[str, int, Any]]) -> None:
    """A launch whose cells hold requests of (prompt, turn, changes), 0.01 s a token."""
    cells = []
    for workload, asked in requests.items():
        cell = records["id"](server, 1, workload)
        made = [records["request"](cell, p, 0.01, turn=turn, **more) for p, turn, more in asked]
        cells.append(records["cell"](cell, tuple(made)))
    run.add(server, 1, cells)


def test_turns_are_told_apart(run: Any, records: Any, config: Config) -> None:
    """Means and medians of each; classes without conversations are left out."""
    session(
        run,
        records,
        "chain",
        short=[("s", 0, {})],
        multiturn=[
            ("a", 0, {}),
            ("b", 0, {"prompt_tokens": 20, "end_s": 0.42}),
            ("a", 1, {"prompt_tokens": 40, "cached_tokens": 30, "finish_reason": "stop"}),
        ],
    )
    table = build_tables(run.folders, config)["turns"]
    assert list(zip(table["workload_class"], table["turn"], table["n_requests"], strict=True)) == [
        ("multiturn", 0, 2),
        ("multiturn", 1, 1),
    ]
    first, second = (row for _, row in table.iterrows())
    assert (first["prompt_tokens"], second["prompt_tokens"]) == (15, 40)
    assert (first["cached_tokens"], second["cached_tokens"]) == (0, 30)
    # 21 tokens in 0.21 s and in 0.42 s: the geometric mean of 100 and 50 tokens a second
    assert first["tok_per_s"] == pytest.approx(math.sqrt(100 * 50))
    # each request: 5 steps of 3 accepted drafts and the bonus token
    assert first["acceptance_length"] == pytest.approx(4)
    assert (first["length_share"], second["length_share"]) == (1, 0)


def test_loops_count_steps_tokens_and_valid_calls(run: Any, records: Any, config: Config) -> None:
    """A loop of two steps and one of one, judged in all three; two were valid."""
    session(
        run,
        records,
        "ar",
        multiturn=[("a", 0, {})],
        agentic=[
            ("a", 0, {"check": RIGHT}),
            ("a", 1, {"check": WRONG, "completion_tokens": 12}),
            ("b", 0, {"check": RIGHT}),
        ],
    )
    (row,) = build_tables(run.folders, config)["loops"].to_dict("records")
    assert (row["workload"], row["loops"], row["steps"]) == ("agentic", 2, 3)
    assert row["steps_per_loop"] == pytest.approx(1.5)
    assert row["tokens_per_step"] == pytest.approx((21 + 12 + 21) / 3)
    assert (row["checks"], row["checks_valid"]) == (3, 2)
    assert row["valid_share"] == pytest.approx(2 / 3)


def test_loops_that_nothing_judged_have_no_share(run: Any, records: Any, config: Config) -> None:
    """Not measured is not zero."""
    session(run, records, "ar", agentic=[("a", 0, {})])
    (row,) = build_tables(run.folders, config)["loops"].to_dict("records")
    assert row["checks"] == 0
    assert math.isnan(row["valid_share"])
