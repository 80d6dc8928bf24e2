"""GSM8K and MATH-500: a line a problem, with its answer."""

from __future__ import annotations

import re
from typing import Final

from ddtree_bench.prompt_sets.adapter import Adapter, Fields, mapping, needed, tags_of

_GSM8K_ANSWER: Final = re.compile(r"^#### *(-?[\d,]*\.?\d+) *$", re.MULTILINE)
"""The line that ends every solution of GSM8K."""


def gsm8k(number: int, entry: object) -> Fields:
    """A problem of GSM8K; its answer must end in the right number."""
    line = mapping(entry)
    found = _GSM8K_ANSWER.search(needed(line, "answer", str))
    if found is None:
        raise ValueError('"answer": a line "#### NUMBER" expected at its end')
    asked = "Work it out in a few short steps and end with the answer as a number."
    return {
        "id": f"gsm8k-{number}",
        "turns": [f"{needed(line, 'question', str)}\n\n{asked}"],
        "tags": {"language": "en", "domain": "maths", "length": "medium", "source": "gsm8k"},
        "check": {"kind": "number", "value": float(found[1].replace(",", ""))},
    }


def _math_500(number: int, entry: object) -> Fields:
    line = mapping(entry)
    asked = "Reason step by step and put the final answer into \\boxed{}."
    return {
        "id": str(line.get("unique_id") or f"line-{number}"),
        "turns": [f"{needed(line, 'problem', str)}\n\n{asked}"],
        "tags": {
            "language": "en",
            "domain": "maths",
            "source": "math-500",
            **tags_of(line, topic="subject", difficulty="level"),
        },
        "check": {"kind": "boxed", "answer": needed(line, "answer", str)},
    }


GSM8K: Final = Adapter(
    'a JSON object a line with "question" and "answer", which ends in "#### NUMBER"', gsm8k
)
MATH_500: Final = Adapter('a JSON object a line with "problem" and "answer", a formula', _math_500)
