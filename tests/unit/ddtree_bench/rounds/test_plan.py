"""How long a run is expected to take."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from fakes import write_prompts

from ddtree_bench.config import Config
from ddtree_bench.layout import RunLayout
from ddtree_bench.rounds.plan import (
    ASSUMED_FILL,
    ASSUMED_START_S,
    ASSUMED_TOK_PER_S,
    measured_later,
    plan,
    render,
)
from ddtree_bench.rounds.schedule import schedule_of
from ddtree_bench.session.spec import SessionSpec

TOKENS = 100
ANSWER_S = TOKENS * ASSUMED_FILL / ASSUMED_TOK_PER_S["sglang"]


def planned(folder: Path, prompts: int, **workload: Any) -> tuple[int, float]:
    """Requests of the only session, and its seconds after the start in answers of one request."""
    file = write_prompts(folder / "prompts.jsonl", prompts)
    asked = {"class": "short", "prompts": str(file), "max_new_tokens": TOKENS, **workload}
    config = Config.model_validate(
        {
            "run": "planned",
            "servers": {"ar": {"model": "m", "engine": "sglang"}},
            "workloads": {"short": asked},
            "protocol": {"launches": 1},
        }
    )
    (session,) = plan(config, folder / "results")
    return session.most_requests, (session.expected_s - ASSUMED_START_S["sglang"]) / ANSWER_S


@pytest.mark.parametrize(
    ("prompts", "concurrency", "requests", "answers"),
    [
        (100, [1], 8, 8),  # the sample, one after the other
        (100, [1, 8], 8 + 32, 8 + 4),  # 8 in flight ask 32, four after one another
        (18, [8], 18, 3),  # 8, 8 and the last 2: as long as three
    ],
)
def test_time_is_that_of_what_is_asked(
    tmp_path: Path, prompts: int, concurrency: list[int], requests: int, answers: int
) -> None:
    """Not of the sample divided by the concurrency."""
    found = planned(tmp_path, prompts, sample=8, concurrency=concurrency)
    assert found == (requests, pytest.approx(answers))


def test_draws_of_a_prompt_are_in_flight_together(tmp_path: Path) -> None:
    """5 prompts, 20 draws, 10 in flight: 100 requests, ten after one another."""
    drawn = {"draws": 20, "temperature": 1.0, "concurrency": [10]}
    assert planned(tmp_path, 5, **drawn) == (100, pytest.approx(10))


def measured(folder: Path, launches: int, finished: int, budget: int = 7) -> tuple[str, ...]:
    """Who is warned of, after so many of the sessions of `ar` and `old` and none of `new`."""
    file = write_prompts(folder / "prompts.jsonl", 1)
    tree = {"model": "m", "drafter": "d", "algorithm": "DDTREE", "budget": 15}
    servers = {"ar": {"model": "m"}, "old": tree, "new": {**tree, "budget": budget}}
    config = Config.model_validate(
        {
            "run": "later",
            "servers": servers,
            "workloads": {"short": {"class": "short", "prompts": str(file)}},
            "protocol": {"launches": launches},
        }
    )
    layout = RunLayout.of("later", folder)
    turns = [turn for turn in schedule_of(config) if turn.server != "new"]
    for turn in turns[:finished]:
        session = layout.session(turn.server, turn.launch)
        session.mkdir(parents=True, exist_ok=True)
        text = SessionSpec.of(config, turn.server, turn.launch).to_json()
        (session / "spec.json").write_text(text, encoding="utf-8")
        (session / "launch.json").touch()
    later = measured_later(config, folder)
    said = [line for line in render(config, (), folder) if "measured after" in line]
    assert [line.split(":")[0] for line in said] == ([", ".join(later)] if later else [])
    return later


@pytest.mark.parametrize(
    ("launches", "finished", "later"),
    [
        (2, 4, ("new",)),  # two servers have both of their rounds
        (2, 3, ("new",)),  # `old` has: its rounds are 1 and 2 already
        (2, 2, ()),  # the first round is not over for `new`
        (2, 0, ()),  # nothing was measured
        (1, 2, ()),  # the only round is common
    ],
)
def test_a_server_that_joins_too_late_is_told(
    tmp_path: Path, launches: int, finished: int, later: tuple[str, ...]
) -> None:
    """Before it is measured, with what to do."""
    assert measured(tmp_path, launches, finished) == later


def test_a_changed_server_joins_late(tmp_path: Path) -> None:
    """What was measured under another budget is not its own."""
    assert measured(tmp_path, 2, 4, budget=7) == ("new",)
    layout = RunLayout.of("later", tmp_path)
    for launch in (1, 2):
        shutil.copytree(layout.session("old", launch), layout.session("new", launch))
    assert measured(tmp_path, 2, 4, budget=31) == ("new",)
