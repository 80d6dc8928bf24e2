"""Whether an answer is what its prompt asked for; nothing of it is run without `run_code`."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]  # ships no types
import yaml

from ddtree_bench.prompts import (
    BoxedCheck,
    CallsCheck,
    ContainsCheck,
    ExpectedCall,
    JsonCheck,
    JsonSchemaCheck,
    NumberCheck,
    PromptCheck,
    PythonCheck,
    PythonTestsCheck,
    SqlCheck,
    YamlCheck,
)
from ddtree_bench.records import Check
from ddtree_bench.workloads.formulas import boxed, same_answer
from ddtree_bench.workloads.run_code import RunCode, fault_of_program

CUT: Final = "cut at max tokens"
_FENCE: Final = re.compile(r"```[\w+-]*[ \t]*\n(.*?)```", re.DOTALL)
_THOUGHT: Final = "</think>"
_NUMBER: Final = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
_DETAIL_CHARS: Final = 200
_TOLERANCE: Final = 1e-6
"""Relative, of numbers that are written in decimals."""
_SQL_REFUSED: Final = frozenset(
    {sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
)
"""What SQLite would do already while it compiles, or to files."""


class _Invalid(Exception):
    """Says in a few words what is wrong with an answer."""


def check_answer(
    check: PromptCheck, text: str, finish_reason: str | None, run_code: RunCode = False
) -> Check:
    """The verdict on an answer; one that max tokens cut is invalid whatever it holds.

    Where `run_code` is false, tests are not run and the kind of the verdict is `python`. What a
    model thinks before it answers is not judged.
    """
    kind = "python" if isinstance(check, PythonTestsCheck) and not run_code else check.kind
    if finish_reason == "length":
        return Check(kind=kind, valid=False, detail=CUT)
    try:
        _examine(check, after_thinking(text), run_code)
    except _Invalid as fault:
        return Check(kind=kind, valid=False, detail=str(fault)[:_DETAIL_CHARS])
    return Check(kind=kind, valid=True)


def after_thinking(text: str) -> str:
    """What follows the last `</think>`, which models write themselves; else the whole text."""
    return text.rpartition(_THOUGHT)[2]


def fenced(text: str) -> str:
    """The content of the first ``` fence, or the whole text where there is none."""
    found = _FENCE.search(text)
    return (found[1] if found else text).strip()


def _examine(check: PromptCheck, text: str, run_code: RunCode) -> None:
    match check:
        case JsonCheck():
            _json(text)
        case JsonSchemaCheck():
            _matches(_json(text), check.json_schema)
        case PythonCheck():
            _defines(text)
        case YamlCheck():
            _yaml(text)
        case ContainsCheck():
            missing = [part for part in check.texts if part.lower() not in text.lower()]
            if missing:
                raise _Invalid(f"does not contain {missing[0]!r}")
        case NumberCheck():
            _ends_in(text, check.value)
        case BoxedCheck():
            _boxed(text, check.answer)
        case SqlCheck():
            _sql(text, check.tables)
        case CallsCheck():
            _calls(_json(text), check.calls)
        case PythonTestsCheck():
            _tested(text, check, run_code)


def _json(text: str) -> object:
    try:
        return json.loads(fenced(text))
    except (ValueError, RecursionError) as error:
        raise _Invalid(f"not JSON: {error}") from error


def _matches(data: object, schema: Mapping[str, Any]) -> None:
    try:
        jsonschema.validate(data, schema)
    except jsonschema.ValidationError as error:
        raise _Invalid(f"{error.json_path}: {error.message}") from error


def _ends_in(text: str, value: float) -> None:
    numbers = _NUMBER.findall(text.replace("\N{MINUS SIGN}", "-"))
    if not numbers:
        raise _Invalid("holds no number")
    if not _close(float(numbers[-1].replace(",", "")), value):
        raise _Invalid(f"ends in {numbers[-1]}, not in {value:g}")


def _boxed(text: str, answer: str) -> None:
    said = boxed(text)
    if said is None:
        raise _Invalid("holds no \\boxed{} answer")
    if not same_answer(said, answer):
        raise _Invalid(f"answers {said}, not {answer}")


def _close(number: float, expected: float) -> bool:
    return abs(number - expected) <= _TOLERANCE * max(1.0, abs(expected))


def _sql(text: str, tables: str) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(tables)
        database.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action in _SQL_REFUSED else sqlite3.SQLITE_OK
        )
        try:
            database.execute("EXPLAIN " + fenced(text))
        # more than one statement is a Warning before Python 3.12
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise _Invalid(f"not SQL for these tables: {error}") from error


def _calls(data: object, expected: Sequence[ExpectedCall]) -> None:
    said = list(data) if isinstance(data, list) else [data]
    missing = list(expected)
    for one in said:
        match one:
            case {"tool": str(tool), "arguments": dict(arguments)}:
                found = next((e for e in missing if is_call(e, tool, arguments)), None)
            case _:
                raise _Invalid('not calls: {"tool": …, "arguments": {…}} expected')
        if found is None:
            raise _Invalid(f"the call of {tool!r} is not the one expected")
        missing.remove(found)
    if missing:
        raise _Invalid(f"does not call {missing[0].tool!r} as expected")


def is_call(expected: ExpectedCall, tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call is the expected one: the tool, and a right value of every argument."""
    if tool != expected.tool or not arguments.keys() <= expected.arguments.keys():
        return False
    return all(
        any(_same(arguments[key], value) for value in allowed)
        if key in arguments
        else "" in allowed
        for key, allowed in expected.arguments.items()
    )


def _same(said: object, expected: object) -> bool:
    """Equal but for the case of texts and the way a number is written."""
    match said, expected:
        case (bool(), _) | (_, bool()):
            return said is expected
        case (int() | float(), int() | float()):
            return _close(said, expected)
        case (str(), str()):
            return said.strip().casefold() == expected.strip().casefold()
        case (list(), list() | tuple()):
            return len(said) == len(expected) and all(map(_same, said, expected))
    return said == expected


def _tested(text: str, check: PythonTestsCheck, run_code: RunCode) -> None:
    _defines(text, check.entry_point)
    if run_code:
        parts = (check.prelude, fenced(text), check.tests, f"check({check.entry_point})")
        fault = fault_of_program("\n\n".join(parts))
        if fault is not None:
            raise _Invalid(fault)


def _defines(text: str, name: str | None = None) -> None:
    try:
        body = ast.parse(fenced(text)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _Invalid(f"not Python: {error}") from error
    defined = [
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    if not defined:
        raise _Invalid("defines no function or class")
    if name is not None and name not in defined:
        raise _Invalid(f"does not define {name}")


def _yaml(text: str) -> None:
    try:
        data = yaml.safe_load(fenced(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _Invalid(f"not YAML: {error}") from error
    # any sentence is a YAML string
    if not isinstance(data, dict | list):
        raise _Invalid("no YAML mapping or list")
