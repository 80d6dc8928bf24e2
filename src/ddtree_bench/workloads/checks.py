"""Whether an answer is what its prompt asked for; nothing of it is ever run."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]  # ships no types
import yaml

from ddtree_bench.prompts import (
    ContainsCheck,
    JsonCheck,
    JsonSchemaCheck,
    PromptCheck,
    PythonCheck,
    YamlCheck,
)
from ddtree_bench.records import Check

CUT: Final = "cut at max tokens"
_FENCE: Final = re.compile(r"```[\w+-]*[ \t]*\n(.*?)```", re.DOTALL)
_DETAIL_CHARS: Final = 200


class _Invalid(Exception):
    """Says in a few words what is wrong with an answer."""


def check_answer(check: PromptCheck, text: str, finish_reason: str | None) -> Check:
    """The verdict on an answer; one that max tokens cut is invalid whatever it holds."""
    if finish_reason == "length":
        return Check(kind=check.kind, valid=False, detail=CUT)
    try:
        _examine(check, text)
    except _Invalid as fault:
        return Check(kind=check.kind, valid=False, detail=str(fault)[:_DETAIL_CHARS])
    return Check(kind=check.kind, valid=True)


def fenced(text: str) -> str:
    """The content of the first ``` fence, or the whole text where there is none."""
    found = _FENCE.search(text)
    return (found[1] if found else text).strip()


def _examine(check: PromptCheck, text: str) -> None:
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


def _defines(text: str) -> None:
    try:
        body = ast.parse(fenced(text)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _Invalid(f"not Python: {error}") from error
    if not any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in body
    ):
        raise _Invalid("defines no function or class")


def _yaml(text: str) -> None:
    try:
        data = yaml.safe_load(fenced(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _Invalid(f"not YAML: {error}") from error
    # any sentence is a YAML string
    if not isinstance(data, dict | list):
        raise _Invalid("no YAML mapping or list")
