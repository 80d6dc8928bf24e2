"""Prompt files of other projects, from lines in their published form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from ddtree_bench.config.workload import PromptFormat
from ddtree_bench.errors import ConfigError, Fault
from ddtree_bench.prompt_sets import ADAPTERS
from ddtree_bench.prompts import BoxedCheck, NumberCheck, Prompt, load_prompts

SPEED: dict[str, Any] = {
    "question_id": "q1",
    "category": "coding",
    "sub_category": "python",
    "turns": ["One?", "Two?"],
    "source": "x",
    "src_id": "7",
    "difficulty": "",
    "multiturn": True,
}
SPEC: dict[str, Any] = {"question_id": 81, "category": "writing", "turns": ["a", "b"]}
SHARE: dict[str, Any] = {
    "id": "abc_0",
    "conversations": [
        {"from": "gpt", "value": "Hello"},
        {"from": "human", "value": "One?"},
        {"from": "gpt", "value": "Yes"},
        {"from": "human", "value": "Two?"},
    ],
}
CHAT: dict[str, Any] = {
    "custom_id": "r-1",
    "method": "POST",
    "body": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "One?"}]},
            {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "user", "content": "Two?"},
        ],
    },
}
MOON: dict[str, Any] = {
    "timestamp": 27482,
    "input_length": 700,
    "output_length": 50,
    "hash_ids": [46, 47],
}


GSM8K: dict[str, Any] = {"question": "One?", "answer": "It is 1,000 * 2.\n#### 2,000"}
MATH: dict[str, Any] = {
    "problem": "What is $x$?",
    "solution": "\\boxed{3}",
    "answer": "3",
    "subject": "Algebra",
    "level": 2,
    "unique_id": "test/algebra/1.json",
}


def load(tmp_path: Path, prompt_format: str, *entries: object, text: str = "") -> list[Prompt]:
    path = tmp_path / "file"
    path.write_text(text or "\n".join(map(json.dumps, entries)), encoding="utf-8")
    return list(load_prompts(path, prompt_format))


def fault(tmp_path: Path, prompt_format: str, *entries: object, text: str = "") -> Fault:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, prompt_format, *entries, text=text)
    (one,) = raised.value.faults
    return one


def test_every_format_of_the_configuration_has_an_adapter() -> None:
    """And no other."""
    assert set(ADAPTERS) == set(get_args(PromptFormat))


@pytest.mark.parametrize(
    ("prompt_format", "entry", "name", "turns"),
    [
        ("speed-bench", SPEED, "q1", ("One?", "Two?")),
        ("spec-bench", SPEC, "81", ("a", "b")),
        ("sharegpt", SHARE, "line-1", ("One?", "Two?")),
        ("openai-chat", CHAT, "r-1", ("One?", "Two?")),
        ("openai-chat", {"messages": [{"role": "user", "content": "x"}]}, "line-1", ("x",)),
    ],
)
def test_entries_become_prompts(
    tmp_path: Path, prompt_format: str, entry: object, name: str, turns: tuple[str, ...]
) -> None:
    """The user's turns are kept in order, what the assistant said is not; the source is a tag."""
    (prompt,) = load(tmp_path, prompt_format, entry)
    assert (prompt.id, prompt.turns) == (name, turns)
    assert prompt.tags["source"] == prompt_format


def test_speed_bench_keeps_its_categories(tmp_path: Path) -> None:
    """As tags; an empty one is left out."""
    (prompt,) = load(tmp_path, "speed-bench", SPEED)
    assert prompt.tags == {"source": "speed-bench", "domain": "coding", "topic": "python"}


def test_speed_bench_placeholders_are_refused(tmp_path: Path) -> None:
    """The published files hold no texts until they are prepared."""
    told = fault(
        tmp_path,
        "speed-bench",
        SPEED,
        SPEED
        | {
            "question_id": "q2",
            "turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"],
        },
    )
    assert told.line == 2
    assert "prepare" in told.what


def test_a_sharegpt_list_tells_lines(tmp_path: Path) -> None:
    """A JSON list over many lines; the fault names the line in which its entry begins."""
    good = json.dumps(SHARE, indent=1)
    lines = good.count("\n") + 1
    text = f'[\n{good},\n{{"id": "x"}}\n]\n'
    told = fault(tmp_path, "sharegpt", text=text)
    # the list's bracket, then the good entry: the wrong one begins in the line after
    assert told.line == 1 + lines + 1
    assert '"conversations": list expected, got nothing' in told.what
    assert '{"from": "human", "value": TEXT}' in told.what


def test_entries_without_a_question_are_left_out(tmp_path: Path) -> None:
    """A conversation in which only the assistant speaks asks nothing."""
    silent = {"conversations": [{"from": "gpt", "value": "Hello"}]}
    assert [p.id for p in load(tmp_path, "sharegpt", silent, SHARE)] == ["line-2"]
    assert "holds no prompt" in fault(tmp_path, "sharegpt", silent).what


@pytest.mark.parametrize("text", ["[1, 2", "[", '[{"conversations": []} {}]', "[tru]"])
def test_a_broken_list_is_one_fault(tmp_path: Path, text: str) -> None:
    """Torn downloads are told, not read halfway."""
    with pytest.raises(ConfigError, match=r"not JSON|object expected"):
        load(tmp_path, "sharegpt", text=text)


def test_system_messages_of_a_chat_are_sent(tmp_path: Path) -> None:
    """They stand before the first turn."""
    (prompt,) = load(tmp_path, "openai-chat", CHAT)
    assert prompt.system == "Be brief."


def test_mooncake_shares_prefixes_as_the_trace_did(tmp_path: Path) -> None:
    """Equal hashes give equal blocks of 512 words; the time of arrival is a tag, in seconds."""
    other = MOON | {"hash_ids": [46, 99], "input_length": 600}
    first, second = load(tmp_path, "mooncake", MOON, other)
    a, b = first.turns[0].split(), second.turns[0].split()
    assert (len(a), len(b)) == (700, 600)
    assert a[:512] == b[:512]
    # 88 words of another block, drawn from 100: equal by chance once in 100^88
    assert a[512:600] != b[512:]
    assert first.tags["timestamp_s"] == "27.482"
    assert first.tags["expected_tokens"] == "50"


@pytest.mark.parametrize(
    ("prompt_format", "entry", "what"),
    [
        ("speed-bench", [1], "object expected, got list"),
        ("speed-bench", {"question_id": 1}, '"turns": list expected'),
        ("spec-bench", {"turns": ["a"]}, '"question_id" is missing'),
        ("openai-chat", {"messages": [{"role": "robot", "content": "a"}]}, 'role "robot"'),
        ("openai-chat", {"messages": [{"role": "user"}]}, '"content": str expected'),
        (
            "openai-chat",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "not image_url",
        ),
        ("sharegpt", {"conversations": [{"from": "alien", "value": "a"}]}, 'role "alien"'),
        ("mooncake", {**MOON, "input_length": 0}, "at least 1"),
        ("mooncake", {**MOON, "timestamp": "now"}, "milliseconds expected"),
        ("mooncake", {**MOON, "hash_ids": 4}, "a list expected, got int"),
    ],
)
def test_a_wrong_entry_says_what_is_expected(
    tmp_path: Path, prompt_format: str, entry: object, what: str
) -> None:
    """File, line, the fault, and the shape of a right entry."""
    told = fault(tmp_path, prompt_format, entry)
    assert (told.file, told.line) == (str(tmp_path / "file"), 1)
    assert what in told.what
    assert ADAPTERS[prompt_format].expected in told.what


@pytest.mark.parametrize("prompt_format", ["speed-bench", "spec-bench"])
def test_a_turn_without_text_is_told_by_its_key(tmp_path: Path, prompt_format: str) -> None:
    """What the adapter lets through is validated as any prompt."""
    told = fault(tmp_path, prompt_format, SPEC | {"turns": ["a", 5]})
    assert told.key == "turns.1"


def test_gsm8k_keeps_the_number(tmp_path: Path) -> None:
    """The question is word for word, the check is the number behind ####."""
    (prompt,) = load(tmp_path, "gsm8k", GSM8K)
    assert prompt.turns[0].startswith("One?\n")
    assert prompt.check == NumberCheck(kind="number", value=2000)


def test_gsm8k_needs_a_number(tmp_path: Path) -> None:
    """A solution without its last line is told."""
    told = fault(tmp_path, "gsm8k", GSM8K, {"question": "?", "answer": "It is 5."})
    assert told.line == 2
    assert "####" in told.what


def test_math_500_asks_for_a_box(tmp_path: Path) -> None:
    """Subject and level become tags, the answer the check."""
    (prompt,) = load(tmp_path, "math-500", MATH)
    assert prompt.id == "test/algebra/1.json"
    assert "\\boxed{}" in prompt.turns[0]
    assert prompt.check == BoxedCheck(kind="boxed", answer="3")
    assert (prompt.tags["topic"], prompt.tags["difficulty"]) == ("Algebra", "2")
