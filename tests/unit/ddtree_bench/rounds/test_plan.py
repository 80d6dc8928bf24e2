"""How long a run is expected to take."""

from pathlib import Path
from typing import Any

import pytest
from fakes import write_prompts

from ddtree_bench.config import Config
from ddtree_bench.rounds.plan import ASSUMED_FILL, ASSUMED_START_S, ASSUMED_TOK_PER_S, plan

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
