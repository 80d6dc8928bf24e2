"""What counts as a valid answer."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from ddtree_bench.prompts import PromptCheck, PythonTestsCheck
from ddtree_bench.records import Check
from ddtree_bench.workloads.checks import check_answer, fenced

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
JSON: dict[str, Any] = {"kind": "json"}
JSON_SCHEMA: dict[str, Any] = {"kind": "json_schema", "schema": SCHEMA}
PYTHON: dict[str, Any] = {"kind": "python"}
YAML: dict[str, Any] = {"kind": "yaml"}
CONTAINS: dict[str, Any] = {"kind": "contains", "texts": ["Id", "name"]}
NUMBER: dict[str, Any] = {"kind": "number", "value": 1440}
BOXED: dict[str, Any] = {"kind": "boxed", "answer": r"\frac{1}{2}"}
SQL: dict[str, Any] = {"kind": "sql", "tables": "CREATE TABLE t (a INTEGER, b TEXT);"}
CALLS: dict[str, Any] = {
    "kind": "calls",
    "calls": [
        {"tool": "area", "arguments": {"base": [5], "unit": ["", "m"]}},
        {"tool": "name", "arguments": {"of": ["Big Tree"], "at": [[1, 2]]}},
    ],
}
AREA = '{"tool": "area", "arguments": {"base": 5.0}}'
NAME = '{"tool": "name", "arguments": {"of": "big tree ", "at": [1, 2]}}'
TESTS: dict[str, Any] = {
    "kind": "python_tests",
    "entry_point": "one",
    "prelude": "from math import floor",
    "tests": "def check(candidate):\n    assert candidate() == 1",
}


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
        (JSON_SCHEMA, '<think>\nn is {"n": "x"}?\n</think>\n\n{"n": 4}'),
        (NUMBER, "12 or 13?</think>1440"),
        (YAML, "a: 1\nb: [2]"),
        (YAML, "```yaml\n- a\n```"),
        (CONTAINS, "ID,NAME,price"),
        (NUMBER, "24 hours of 60 minutes are 1,440."),
        (NUMBER, "1440.0"),
        (BOXED, r"It is $\boxed{0.5}$."),
        (SQL, "```sql\nSELECT a FROM t WHERE b = 'x';\n```"),
        (SQL, "DELETE FROM t"),
        (CALLS, f"[{NAME}, {AREA}]"),
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
        (NUMBER, "none", "holds no number"),
        (NUMBER, "it is 1440</think>", "holds no number"),
        (NUMBER, "1440 minutes or 24 hours", "ends in 24, not in 1440"),
        (NUMBER, "\N{MINUS SIGN}1440", "ends in -1440"),
        (BOXED, "0.5", "no \\boxed{}"),
        (BOXED, r"\boxed{2}", r"answers 2, not \frac{1}{2}"),
        (SQL, "SELECT c FROM t", "no such column"),
        (SQL, "SELECT 1; SELECT 2", "one statement"),
        (SQL, "ATTACH 'file' AS other", "not authorized"),
        (SQL, "PRAGMA user_version = 3", "not authorized"),
        (SQL, "a\0b", "not SQL"),
        (CALLS, f"[{AREA}]", "does not call 'name'"),
        (CALLS, f"[{AREA}, {AREA}]", "the call of 'area' is not the one expected"),
        (CALLS, f"[{AREA.replace('5.0', 'true')}, {NAME}]", "'area'"),
        (CALLS, f"[{NAME.replace('[1, 2]', '[2, 1]')}, {AREA}]", "'name'"),
        (CALLS, f"[{NAME.replace('at', 'by')}, {AREA}]", "'name'"),
        (CALLS, "[4]", "not calls"),
    ],
)
def test_invalid_answers_say_why(check: dict[str, Any], text: str, detail: str) -> None:
    """The detail names the fault; prose is neither YAML nor Python."""
    check_ = verdict(check, text)
    assert not check_.valid
    assert detail in check_.detail
    assert len(check_.detail) <= 200


@pytest.mark.parametrize(
    "check", [JSON, JSON_SCHEMA, PYTHON, YAML, CONTAINS, NUMBER, BOXED, SQL, CALLS]
)
def test_a_cut_answer_is_invalid_for_that_reason(check: dict[str, Any]) -> None:
    """Max tokens decide before the content does."""
    assert verdict(check, "[1]", "length") == Check(
        kind=check["kind"], valid=False, detail="cut at max tokens"
    )


def test_an_open_fence_is_no_fence() -> None:
    """Without its end, a fence is part of the text."""
    assert fenced("```json\n{}") == "```json\n{}"
    assert fenced("a\n```\nb\n```\n```\nc\n```") == "b"


def test_code_is_only_parsed_by_default() -> None:
    """The kind says so; the function that was asked for must be there."""
    wrong = "def one():\n    return 2"
    assert verdict(TESTS, wrong) == Check(kind="python", valid=True)
    other = verdict(TESTS, "def two():\n    return 1")
    assert (other.valid, other.detail) == (False, "does not define one")


def test_code_runs_its_tests_where_asked() -> None:
    """Right, wrong, and code that uses what stands before it."""
    parsed = PythonTestsCheck.model_validate(TESTS)
    right = check_answer(parsed, "def one():\n    return floor(1.5)", "stop", "unisolated")
    wrong = check_answer(parsed, "def one():\n    return 2", "stop", "unisolated")
    assert right == Check(kind="python_tests", valid=True)
    assert (wrong.valid, wrong.detail) == (False, "AssertionError:")
