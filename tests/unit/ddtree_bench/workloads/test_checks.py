"""What counts as a valid answer."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from ddtree_bench.prompts import PromptCheck
from ddtree_bench.records import Check
from ddtree_bench.workloads.checks import check_answer, fenced

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
JSON: dict[str, Any] = {"kind": "json"}
JSON_SCHEMA: dict[str, Any] = {"kind": "json_schema", "schema": SCHEMA}
PYTHON: dict[str, Any] = {"kind": "python"}
YAML: dict[str, Any] = {"kind": "yaml"}
CONTAINS: dict[str, Any] = {"kind": "contains", "texts": ["Id", "name"]}


def verdict(check: dict[str, Any], text: str, finish_reason: str = "stop") -> Check:
    parsed: PromptCheck = TypeAdapter(PromptCheck).validate_python(check)
    return check_answer(parsed, text, finish_reason)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (JSON, "[1]"),
        (JSON, 'Here:\n```json\n{"a": 1}\n```\nGood luck.'),
        (JSON_SCHEMA, '{"n": 4}'),
        (PYTHON, "```python\ndef f():\n    return 1\n```"),
        (PYTHON, "class A: pass"),
        (YAML, "a: 1\nb: [2]"),
        (YAML, "```yaml\n- a\n```"),
        (CONTAINS, "ID,NAME,price"),
    ],
)
def test_valid_answers(check: dict[str, Any], text: str) -> None:
    """Bare or in a fence, the answer is what was asked for."""
    assert verdict(check, text) == Check(kind=check["kind"], valid=True)


@pytest.mark.parametrize(
    ("check", "text", "detail"),
    [
        (JSON, "", "not JSON"),
        (JSON, "{'a': 1}", "not JSON"),
        (JSON, "[" * 100_000, "not JSON"),
        (JSON_SCHEMA, '{"n": "4"}', "$.n"),
        (JSON_SCHEMA, "{}", "required"),
        (PYTHON, "def f(:", "not Python"),
        (PYTHON, "done", "defines no function"),
        (PYTHON, "", "defines no function"),
        (PYTHON, "a\0b", "not Python"),
        (YAML, "only a sentence", "no YAML mapping"),
        (YAML, "a: [", "not YAML"),
        (YAML, "!!python/object/apply:os.system [ls]", "not YAML"),
        (CONTAINS, "id only", "'name'"),
    ],
)
def test_invalid_answers_say_why(check: dict[str, Any], text: str, detail: str) -> None:
    """The detail names the fault; prose is neither YAML nor Python."""
    check_ = verdict(check, text)
    assert not check_.valid
    assert detail in check_.detail
    assert len(check_.detail) <= 200


@pytest.mark.parametrize("check", [JSON, JSON_SCHEMA, PYTHON, YAML, CONTAINS])
def test_a_cut_answer_is_invalid_for_that_reason(check: dict[str, Any]) -> None:
    """Max tokens decide before the content does."""
    assert verdict(check, "[1]", "length") == Check(
        kind=check["kind"], valid=False, detail="cut at max tokens"
    )


def test_an_open_fence_is_no_fence() -> None:
    """Without its end, a fence is part of the text."""
    assert fenced("```json\n{}") == "```json\n{}"
    assert fenced("a\n```\nb\n```\n```\nc\n```") == "b"
