"""SPEED-Bench and Spec-Bench: a line a question, with one or several turns."""

from __future__ import annotations

from functools import partial
from typing import Final

from ddtree_bench.prompt_sets.adapter import Adapter, Fields, mapping, needed, tags_of

# how the published SPEED-Bench files mark texts that the user has yet to fetch
_NOT_FETCHED: Final = "FULL BENCHMARK DATA SHOULD BE FETCHED"


def _question(source: str, _: int, entry: object) -> Fields:
    line = mapping(entry)
    turns = needed(line, "turns", list)
    if any(_NOT_FETCHED in str(turn) for turn in turns):
        raise ValueError("this file holds placeholders: let SPEED-Bench's `prepare` fill it first")
    if line.get("question_id") in (None, ""):
        raise ValueError('"question_id" is missing')
    return {
        "id": str(line["question_id"]),
        "turns": turns,
        "tags": {
            "source": source,
            **tags_of(line, domain="category", topic="sub_category", difficulty="difficulty"),
        },
    }


SPEED_BENCH: Final = Adapter(
    'a JSON object a line with "question_id" and "turns", a list of texts',
    partial(_question, "speed-bench"),
)
SPEC_BENCH: Final = Adapter(
    'a JSON object a line with "question_id", "category" and "turns", a list of texts',
    partial(_question, "spec-bench"),
)
