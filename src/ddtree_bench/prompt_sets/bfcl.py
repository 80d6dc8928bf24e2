"""A drawn part of BFCL: single questions with the right calls, and conversations with results.

A conversation's results are those of its right calls, made once, here, with the package's own
classes: they act on plain objects in memory and draw from seeds of their own.
"""

from __future__ import annotations

import ast
import copy
import importlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from zipfile import ZipFile

from ddtree_bench.prompt_sets import drawing
from ddtree_bench.prompt_sets.adapter import Fields

SINGLE_TURN: Final = ("simple_python", "multiple", "parallel")
SINGLE_TURN_EACH: Final = 20
MULTI_TURN: Final = 40
TURNS: Final = range(2, 5)
MOST_CALLS: Final = 3
"""Of a turn; with its answer, a turn then fits into the default `max_steps`."""

_DATA: Final = "bfcl_eval/data/"
_CODE: Final = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_MODULES: Final = {
    "GorillaFileSystem": "gorilla_file_system",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""Classes whose conversations are taken; MathAPI is left out, as it needs further packages."""
_SINGLE: Final = (
    "You control the functions below. Every reply is a JSON list of the calls that do what the "
    'user asks, and nothing else: [{"tool": "NAME", "arguments": {"NAME": VALUE}}].\n'
    "Functions:"
)
_STEPWISE: Final = (
    "You control the functions below. Every reply is one JSON object and nothing else.\n"
    'To call a function, reply {"tool": "NAME", "arguments": {"NAME": VALUE}}. '
    "The user then sends its result.\n"
    'When all that the user asked for is done, reply {"answer": "TEXT"}.\n'
    "Functions:"
)


def bfcl(wheel: ZipFile) -> Iterator[Fields]:
    """Single questions of three categories, then conversations."""
    for category in SINGLE_TURN:
        found = [task for task in _tasks(wheel, category) if _is_simple(task["expected"])]
        for number, task in enumerate(drawing.shuffled(found, category)[:SINGLE_TURN_EACH]):
            # the smallest sample is a single question: conversations list many functions
            pinned = number == 0 and category == SINGLE_TURN[0]
            yield _single_turn(task) | ({"pinned": True} if pinned else {})
    found = [task for task in _tasks(wheel, "multi_turn_base") if _is_talk(task)]
    functions = {name: _functions(wheel, module) for name, module in _MODULES.items()}
    with _importable(wheel):
        talks = (_conversation(task, functions) for task in drawing.shuffled(found, "multi_turn"))
        yield from drawing.first((talk for talk in talks if talk is not None), MULTI_TURN)


def _single_turn(task: Mapping[str, Any]) -> Fields:
    calls = [
        {"tool": name, "arguments": arguments}
        for call in task["expected"]
        for name, arguments in call.items()
    ]
    lines = [_signature(function, whole=True) for function in task["function"]]
    return {
        "id": f"bfcl-{task['id']}",
        "system": "\n".join([_SINGLE, *lines]),
        "turns": [task["question"][0][0]["content"]],
        "tags": drawing.tags("bfcl", "tools", "short"),
        "check": {"kind": "calls", "calls": calls},
    }


def _conversation(
    task: Mapping[str, Any], functions: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Fields | None:
    """The user's turns, the right calls of each and their results; None if a call is not plain."""
    left_out = set(task.get("excluded_function", ()))
    known = {
        function["name"]: function
        for name in task["involved_classes"]
        for function in functions[name]
        if function["name"] not in left_out
    }
    try:
        calls = [[_call(text, known) for text in turn] for turn in task["expected"]]
    except ValueError:
        return None
    objects = [_object(name, task["initial_config"]) for name in task["involved_classes"]]
    return {
        "id": f"bfcl-{task['id']}",
        "system": "\n".join([_STEPWISE, *(_signature(f, whole=False) for f in known.values())]),
        "turns": [turn[0]["content"] for turn in task["question"]],
        "tags": drawing.tags("bfcl", "tools", "short"),
        "recorded_calls": [
            [
                {
                    "tool": name,
                    "arguments": {key: [value] for key, value in arguments.items()},
                    "result": _result(objects, name, arguments),
                }
                for name, arguments in turn
            ]
            for turn in calls
        ],
    }


def _call(text: str, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """A call written as Python; ValueError if it is none of a known function, with plain values."""
    match ast.parse(text, mode="eval").body:
        case ast.Call(func=ast.Name(id=name), args=plain, keywords=named) if name in known:
            keys = list(known[name]["parameters"]["properties"])
            pairs = [*zip(keys, plain, strict=False), *((one.arg, one.value) for one in named)]
            return name, {str(key): ast.literal_eval(value) for key, value in pairs}
    raise ValueError(f"no plain call: {text}")


def _object(name: str, states: Mapping[str, Any]) -> object:
    """The package's object behind some functions, in the state that the task begins with."""
    made = getattr(importlib.import_module(f"{_CODE}.{_MODULES[name]}"), name)()
    made._load_scenario(copy.deepcopy(states.get(name, {})))
    return made


def _result(objects: Sequence[object], name: str, arguments: Mapping[str, Any]) -> str:
    """What a call gives, as BFCL writes it."""
    function = next(getattr(each, name) for each in objects if hasattr(each, name))
    try:
        said = function(**arguments)
    except Exception as error:
        return f"Error during execution: {error}"
    if isinstance(said, dict):
        return json.dumps(said, default=str)
    return str(said)


@contextmanager
def _importable(wheel: ZipFile) -> Iterator[None]:
    """Let the wheel's modules be imported; some tell local times, which are UTC here."""
    zone = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    sys.path.insert(0, str(wheel.filename))
    try:
        yield
    finally:
        sys.path.remove(str(wheel.filename))
        for name in [name for name in sys.modules if name.partition(".")[0] == "bfcl_eval"]:
            del sys.modules[name]
        os.environ.pop("TZ") if zone is None else os.environ.update(TZ=zone)
        time.tzset()


def _signature(function: Mapping[str, Any], *, whole: bool) -> str:
    """A function in a line: its name, its arguments with types, what it does."""
    parameters = function["parameters"]
    required = parameters.get("required", ())
    arguments = [
        f"{name}{'' if name in required else '?'}: {about['type'].replace('dict', 'object')}"
        for name, about in parameters["properties"].items()
    ]
    what = function["description"].rpartition("Tool description: ")[2]
    line = f"- {function['name']}({', '.join(arguments)}): {what}"
    if not whole:
        return line.partition(". ")[0].rstrip(".")
    about = (f"  {name}: {one['description']}" for name, one in parameters["properties"].items())
    return "\n".join([line, *about])


def _tasks(wheel: ZipFile, category: str) -> Iterator[dict[str, Any]]:
    """Tasks of a category with their right calls under `expected`."""
    name = f"BFCL_v4_{category}.json"
    answers = {
        answer["id"]: answer["ground_truth"]
        for answer in drawing.json_lines(wheel.read(f"{_DATA}possible_answer/{name}"))
    }
    for task in drawing.json_lines(wheel.read(_DATA + name)):
        yield {**task, "expected": answers[task["id"]]}


def _is_simple(expected: Iterable[Mapping[str, Mapping[str, list[Any]]]]) -> bool:
    """Whether all right values are plain or lists of plain ones: others have rules of their own."""
    values = [
        value
        for call in expected
        for arguments in call.values()
        for allowed in arguments.values()
        for value in allowed
    ]
    parts = [part for value in values for part in (value if isinstance(value, list) else [value])]
    return not any(isinstance(part, dict | list) for part in parts)


def _is_talk(task: Mapping[str, Any]) -> bool:
    return (
        len(task["question"]) in TURNS
        and all(len(calls) <= MOST_CALLS for calls in task["expected"])
        and all(name in _MODULES for name in task["involved_classes"])
    )


def _functions(wheel: ZipFile, module: str) -> list[Mapping[str, Any]]:
    return list(drawing.json_lines(wheel.read(f"{_DATA}multi_turn_func_doc/{module}.json")))
