"""How prompt files are read, and which prompts a sample holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddtree_bench.config import CLASSES
from ddtree_bench.errors import ConfigError, Fault
from ddtree_bench.prompts import Prompt, draw, load_prompts

SHIPPED = Path(__file__).parents[3] / "workflow" / "resources" / "prompts"
ORIGINAL = {
    "fibonacci": "Write a Python function fibonacci(n) using iteration. Return only code.",
    "quicksort": "Explain the quicksort algorithm in 3 sentences.",
    "two-plus-two": "What is 2+2? Answer with just the number.",
}


def write(path: Path, *lines: str | dict[str, Any]) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def prompts(*names: str, pinned: str = "") -> tuple[Prompt, ...]:
    return tuple(Prompt(id=name, turns=("x",), pinned=name == pinned) for name in names)


def faults(path: Path) -> tuple[Fault, ...]:
    with pytest.raises(ConfigError) as raised:
        load_prompts(path)
    return raised.value.faults


def test_prompts_keep_the_order_of_their_file(tmp_path: Path) -> None:
    """Blank lines are skipped; U+2028 inside a text does not end a line."""
    file = write(
        tmp_path / "p.jsonl",
        {"id": "b", "turns": ["one", "two"], "system": "Be brief."},
        "",
        '{"id": "a", "turns": ["\u2028"], "check": {"kind": "json_schema", "schema": {}}}',
    )
    first, second = load_prompts(file)
    assert (first.id, first.turns, first.system) == ("b", ("one", "two"), "Be brief.")
    assert second.turns == ("\u2028",)


@pytest.mark.parametrize(
    ("line", "key", "what"),
    [
        ("{", "", "not JSON"),
        ("[1]", "", "dict"),
        ({"turns": ["a"]}, "id", "required"),
        ({"id": "a", "turns": []}, "turns", "at least 1"),
        ({"id": "a", "turns": [""]}, "turns.0", "at least 1"),
        ({"id": "a", "turns": ["a"], "sytem": "b"}, "sytem", 'did you mean "system"?'),
        ({"id": "a", "turns": ["a"], "tools": ["calculater"]}, "tools", '"calculator"?'),
        ({"id": "a", "turns": ["a"], "check": {"kind": "xml"}}, "check", "json_schema"),
    ],
)
def test_a_fault_names_file_line_and_key(
    tmp_path: Path, line: str | dict[str, Any], key: str, what: str
) -> None:
    """Each kind of fault is told where it stands and what is expected."""
    file = write(tmp_path / "p.jsonl", {"id": "ok", "turns": ["a"]}, line)
    (fault,) = faults(file)
    assert (fault.file, fault.line, fault.key) == (str(file), 2, key)
    assert what in fault.what


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    """Nobody repairs a file line by line."""
    same = {"id": "a", "turns": ["x"]}
    told = faults(write(tmp_path / "p.jsonl", "{", same, same, {"id": "b"}))
    assert [fault.line for fault in told] == [1, 4, None]
    assert '"a" is used 2 times' in told[2].what


def test_a_missing_or_empty_file_is_a_fault(tmp_path: Path) -> None:
    """An empty file would measure nothing."""
    assert "no such file" in faults(tmp_path / "none.jsonl")[0].what
    assert "no prompt" in faults(write(tmp_path / "p.jsonl", "", ""))[0].what


def test_a_sample_does_not_depend_on_the_order_of_the_file() -> None:
    """The same names are drawn from a reordered file."""
    names = [f"p{number}" for number in range(20)]
    assert draw(prompts(*names), 5, seed=1) == draw(prompts(*reversed(names)), 5, seed=1)


def test_a_smaller_sample_begins_a_larger_one() -> None:
    """More prompts add to what was measured."""
    pool = prompts(*(f"p{number}" for number in range(20)))
    assert draw(pool, 8, seed=1)[:3] == draw(pool, 3, seed=1)
    everything = draw(pool, "all", seed=1)
    assert everything[:8] == draw(pool, 8, seed=1)
    assert sorted(prompt.id for prompt in everything) == sorted(prompt.id for prompt in pool)


def test_seeds_draw_differently() -> None:
    """5 of 20 in order: two seeds agree by chance once in 20!/15! ≈ 1.9 million."""
    pool = prompts(*(f"p{number}" for number in range(20)))
    assert draw(pool, 5, seed=1) != draw(pool, 5, seed=2)


def test_pinned_prompts_are_in_every_sample() -> None:
    """A sample of one is the pinned prompt, whatever the seed."""
    pool = prompts("a", "b", "c", "d", pinned="c")
    assert {draw(pool, 1, seed)[0].id for seed in range(10)} == {"c"}


def test_too_large_a_sample_is_an_error() -> None:
    """Prompts are never repeated to fill a sample: they would come from the cache."""
    with pytest.raises(ConfigError, match="3 prompts asked for, there are 2"):
        draw(prompts("a", "b"), 3, seed=0)


@pytest.mark.parametrize("name", CLASSES)
def test_each_shipped_class_has_ten_own_prompts(name: str) -> None:
    """Every class ships at least ten prompts, tagged with language and topic."""
    loaded = load_prompts(SHIPPED / f"{name}.jsonl")
    assert len([prompt for prompt in loaded if not prompt.pinned]) >= 10
    assert all({"language", "topic"} <= prompt.tags.keys() for prompt in loaded)


def test_shipped_prompts_suit_their_class() -> None:
    """Conversations have turns, structured prompts checks, agentic prompts tools, only those."""
    loaded = {name: load_prompts(SHIPPED / f"{name}.jsonl") for name in CLASSES}
    assert all(
        (len(p.turns) > 1) == (name == "multiturn") for name in CLASSES for p in loaded[name]
    )
    assert all((p.check is not None) == (n == "structured") for n in CLASSES for p in loaded[n])
    assert all(bool(p.tools) == (name == "agentic") for name in CLASSES for p in loaded[name])


def test_the_original_prompts_are_word_for_word() -> None:
    """`original` holds the three, and a sample of four short prompts contains them."""
    original = load_prompts(SHIPPED / "original.jsonl")
    assert {prompt.id: prompt.turns[0] for prompt in original} == ORIGINAL
    for seed in range(5):
        short = draw(load_prompts(SHIPPED / "short.jsonl"), 4, seed)
        assert ORIGINAL.items() <= {prompt.id: prompt.turns[0] for prompt in short}.items()
