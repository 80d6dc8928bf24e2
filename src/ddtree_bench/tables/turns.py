"""Conversations turn by turn, and tool loops by their steps; from the table of requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from ddtree_bench.columns import LOOPS, TURNS
from ddtree_bench.tables.pooled import acceptance_of, geometric_of, length_share, mean_of, median_of
from ddtree_bench.tables.rows import Value, frame_of, grouped

TALKING = ("multiturn", "agentic")
"""Classes whose prompts may go on for several turns."""
_TURN = ["server", "workload_class", "concurrency", "turn"]
_LOOPS = ["server", "workload", "concurrency"]
_LOOP = ["launch", "repeat", "prompt_id"]


def turns_frame(requests: pd.DataFrame) -> pd.DataFrame:
    """A row a server, class with conversations, concurrency and turn, of requests that count."""
    talks = requests[requests["workload_class"].isin(TALKING)]
    return frame_of(
        (
            {**dict(zip(_TURN, key, strict=True)), **_turn(group)}
            for key, group in grouped(talks, _TURN).items()
        ),
        TURNS,
    )


def _turn(requests: pd.DataFrame) -> Mapping[str, Value]:
    return {
        "n_requests": len(requests),
        "prompt_tokens": mean_of(requests["prompt_tokens"]),
        "cached_tokens": mean_of(requests["cached_tokens"]),
        "completion_tokens": mean_of(requests["completion_tokens"]),
        "ttft_p50_s": median_of(requests["ttft_s"]),
        "tok_per_s": geometric_of(requests["tok_per_s"]),
        "acceptance_length": acceptance_of(requests),
        "length_share": length_share(requests),
        **_checks(requests),
    }


def loops_frame(requests: pd.DataFrame) -> pd.DataFrame:
    """A row a server, agentic workload and concurrency, of requests that count."""
    return frame_of(_loop_rows(requests[requests["workload_class"] == "agentic"]), LOOPS)


def _loop_rows(requests: pd.DataFrame) -> Iterator[Mapping[str, Value]]:
    for key, group in grouped(requests, _LOOPS).items():
        loops = len(group[_LOOP].drop_duplicates())
        checks = _checks(group)
        yield {
            **dict(zip(_LOOPS, key, strict=True)),
            "loops": loops,
            "steps": len(group),
            "steps_per_loop": len(group) / loops,
            "tokens_per_step": mean_of(group["completion_tokens"]),
            **checks,
            "valid_share": checks["checks_valid"] / checks["checks"] if checks["checks"] else None,
        }


def _checks(requests: pd.DataFrame) -> dict[str, int]:
    judged = requests["check_valid"].dropna()
    return {"checks": len(judged), "checks_valid": int(judged.sum())}
