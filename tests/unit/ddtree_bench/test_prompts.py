"""How prompt files are read, and which prompts a sample holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddtree_bench.config import CLASSES, Workload, load_config
from ddtree_bench.errors import ConfigError, Fault
from ddtree_bench.prompt_sets.selection import SETS
from ddtree_bench.prompts import NumberCheck, Prompt, draw, load_prompts, prompts_of

REPOSITORY = Path(__file__).parents[3]
SHIPPED = REPOSITORY / "workflow" / "resources" / "prompts"
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


def shipped(name: str) -> list[Prompt]:
    """All prompts of a class in the default configuration."""
    config = load_config(REPOSITORY / "config" / "config.yaml")
    return [
        prompt
        for workload in config.workloads.values()
        if workload.workload_class == name
        for prompt in load_prompts(REPOSITORY / workload.prompts)
    ]


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
        ({"id": "a", "turns": ["a", "b"], "answer_start": "c"}, "", "a single answer"),
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
def test_each_class_ships_a_hundred_prompts(name: str) -> None:
    """Own ones and other projects', each tagged with what tables are split by."""
    loaded = shipped(name)
    assert len(loaded) >= 100
    assert all({"language", "domain", "length", "source"} <= p.tags.keys() for p in loaded)


def test_the_default_sample_is_four_prompts_a_class() -> None:
    """So that a run takes minutes; the three original prompts are all asked."""
    config = load_config(REPOSITORY / "config" / "config.yaml")
    sizes = dict.fromkeys(CLASSES, 0)
    for workload in config.workloads.values():
        if workload.workload_class != "original":
            assert isinstance(workload.sample, int)
            sizes[workload.workload_class] += workload.sample
    assert sizes == dict.fromkeys(CLASSES, 4)


def test_shipped_prompts_suit_their_class() -> None:
    """Conversations have turns, structured prompts checks, agentic prompts tools or calls."""
    loaded = {name: shipped(name) for name in CLASSES}
    for name in ("short", "longform", "structured"):
        assert all(len(prompt.turns) == 1 for prompt in loaded[name])
    assert all(len(prompt.turns) > 1 for prompt in loaded["multiturn"])
    assert all(prompt.check is not None for prompt in loaded["structured"])
    assert all(
        prompt.tools or prompt.recorded_calls or prompt.check is not None
        for prompt in loaded["agentic"]
    )
    assert not any(prompt.tools for name in CLASSES[:4] for prompt in loaded[name])


def test_other_projects_prompts_stand_beside_their_licence() -> None:
    """A folder each, with where it comes from; all that is vendored stays below 4 MB."""
    for folder in ("gsm8k", *SETS):
        held = {file.name for file in (SHIPPED / folder).iterdir()}
        assert held == {"prompts.jsonl", "SOURCE.md", "LICENSE"}
    assert sum(file.stat().st_size for file in SHIPPED.rglob("*") if file.is_file()) < 4_000_000


def test_computed_answers_of_the_word_problems() -> None:
    """Three of them worked out by hand."""
    answers = {p.id: p.check.value for p in shipped("short") if isinstance(p.check, NumberCheck)}
    texts = {prompt.id: prompt.turns[0] for prompt in shipped("short")}
    assert "6 trays with 9 rolls each and sells 47" in texts["problem-01"]
    assert answers["problem-01"] == 6 * 9 - 47
    assert "Anna has 20 stamps. She gives 4" in texts["problem-04"]
    assert answers["problem-04"] == 20 - 4 + 2 * 4
    assert "add up to 33" in texts["problem-09"]
    assert answers["problem-09"] == 12  # 10 + 11 + 12


def test_recorded_arrivals_need_times(tmp_path: Path) -> None:
    """Of every prompt that is drawn, as a number of seconds."""
    lines = [
        json.dumps({"id": name, "turns": ["?"], "tags": tags})
        for name, tags in (("a", {"timestamp_s": "1.5"}), ("b", {"timestamp_s": "nan"}))
    ]
    fields = {"class": "short", "arrivals": "recorded", "arrivals_per_s": [1.0]}
    timed = write(tmp_path / "timed.jsonl", lines[0])
    fields["prompts"] = str(timed)
    (prompt,) = prompts_of(Workload.model_validate(fields), seed=0)
    assert prompt.arrived_s == 1.5
    fields["prompts"] = str(write(tmp_path / "half.jsonl", "\n".join(lines)))
    with pytest.raises(ConfigError, match='"b" has no tag `timestamp_s`'):
        prompts_of(Workload.model_validate(fields), seed=0)


def test_tools_of_the_server_replay_no_calls(tmp_path: Path) -> None:
    """Recorded calls are asked for as text."""
    line = json.dumps({"id": "a", "turns": ["?"], "recorded_calls": [[]]})
    fields = {"class": "agentic", "prompts": str(write(tmp_path / "p.jsonl", line))}
    assert len(prompts_of(Workload.model_validate(fields), seed=0)) == 1
    by_server = fields | {"tool_route": "openai", "route": "chat"}
    with pytest.raises(ConfigError, match="asked for as text"):
        prompts_of(Workload.model_validate(by_server), seed=0)


def test_only_the_native_route_can_start_an_answer(tmp_path: Path) -> None:
    """The chat route renders the prompt itself, and would drop the start."""
    file = write(tmp_path / "p.jsonl", {"id": "a", "turns": ["a"], "answer_start": "b"})
    fields = {"class": "short", "prompts": str(file)}
    assert prompts_of(Workload.model_validate(fields), seed=0)[0].answer_start == "b"
    with pytest.raises(ConfigError, match="only route `generate`"):
        prompts_of(Workload.model_validate(fields | {"route": "chat"}), seed=0)


def test_the_original_prompts_are_word_for_word() -> None:
    """`original` holds the three, and a sample of four short prompts contains them."""
    original = load_prompts(SHIPPED / "original.jsonl")
    assert {prompt.id: prompt.turns[0] for prompt in original} == ORIGINAL
    for seed in range(5):
        short = draw(load_prompts(SHIPPED / "short.jsonl"), 4, seed)
        assert ORIGINAL.items() <= {prompt.id: prompt.turns[0] for prompt in short}.items()


def of_pool(tmp_path: Path, size: int, **fields: object) -> tuple[Workload, Path]:
    """A workload of so many prompts, the last one pinned."""
    lines = [{"id": f"p{n}", "turns": ["?"], "pinned": n == size - 1} for n in range(size)]
    path = write(tmp_path / "pool.jsonl", *lines)
    return Workload.model_validate({"class": "short", "prompts": str(path), **fields}), path


def ids(workload: Workload, concurrency: int | None = None) -> list[str]:
    return [prompt.id for prompt in prompts_of(workload, 0, concurrency)]


def test_a_cell_draws_four_prompts_for_each_in_flight(tmp_path: Path) -> None:
    """The sample is the beginning of them, the pinned one among it; one in flight needs no more."""
    workload, _ = of_pool(tmp_path, 40, sample=5, concurrency=[1, 2, 8])
    sizes = {level: len(ids(workload, level)) for level in (1, 2, 8)}
    assert sizes == {1: 5, 2: 8, 8: 32}
    assert ids(workload, 8)[:5] == ids(workload, 2)[:5] == ids(workload, 1)
    assert ids(workload, 1)[0] == "p39"
    assert ids(workload) == ids(workload, 8), "of all cells together"


def test_a_set_gives_what_it_has(tmp_path: Path) -> None:
    """20 prompts for 8 in flight are taken whole; the sample's own size stays an error."""
    workload, _ = of_pool(tmp_path, 20, sample=5, concurrency=[8])
    assert len(ids(workload, 8)) == 20
    with pytest.raises(ConfigError, match="21 prompts asked for, there are 20"):
        prompts_of(workload.model_copy(update={"sample": 21}), 0)


def test_fewer_prompts_than_in_flight_are_an_error(tmp_path: Path) -> None:
    """A cell asks each once, so that they cannot be in flight; draws of one prompt can."""
    workload, path = of_pool(tmp_path, 5, concurrency=[1, 8])
    with pytest.raises(ConfigError, match="8 in flight need as many prompts, there are 5") as told:
        prompts_of(workload, 0)
    assert (told.value.faults[0].file, told.value.faults[0].key) == (str(path), "concurrency")
    drawn = {"draws": 20, "temperature": 1.0, "sample": 1, "concurrency": [8]}
    drawing = Workload.model_validate({"class": "short", "prompts": str(path), **drawn})
    assert len(ids(drawing, 8)) == 2, "2 prompts, 20 times each: 40 of the 4 times 8 wanted"
