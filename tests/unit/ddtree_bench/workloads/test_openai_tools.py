"""Tool loops through the server's own tools: what is offered, run, told and judged."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_bench.client.answers import Answer
from ddtree_bench.prompts import Prompt
from ddtree_bench.records import RequestRecord, ToolCall
from ddtree_bench.workloads.run import measure_cell

PROMPT = Prompt(id="t", turns=("What is 6 * 7?",), tools=("lookup", "calculator"), system="Hello.")
OPENAI: dict[str, Any] = {"route": "chat", "tool_route": "openai"}


def calls(*pairs: tuple[str, str], finish_reason: str = "tool_calls") -> Answer:
    made = tuple(ToolCall(id=f"c{n}", name=name, arguments=a) for n, (name, a) in enumerate(pairs))
    return Answer("", None, 5, 9, finish_reason=finish_reason, tool_calls=made)


def checks(records: tuple[RequestRecord, ...]) -> list[tuple[bool, str]]:
    return [(r.check.valid, r.check.detail) for r in records if r.check is not None]


CALL = calls(("calculator", '{"expression": "6 * 7"}'))


def test_the_tools_are_offered_with_their_schemas(scripted: Any, tokenizer: Any, task: Any) -> None:
    """System message and task as they are; no worked examples, which the template has."""
    client = scripted("42")
    measure_cell(client, tokenizer, task(PROMPT, **OPENAI))
    ((messages, tools),) = client.chats
    assert [m["role"] for m in messages] == ["system", "user"]
    assert [tool["function"]["name"] for tool in tools] == ["lookup", "calculator"]
    assert tools[1]["function"]["parameters"]["required"] == ["expression"]


def test_results_go_back_by_id_until_the_model_answers(
    scripted: Any, tokenizer: Any, task: Any
) -> None:
    """Every call of a reply is run; a text ends the loop."""
    two = calls(
        ("calculator", '{"expression": "6 * 7"}'), ("lookup", '{"table": "price", "key": "figs"}')
    )
    client = scripted(two, "42 and 9")
    records = measure_cell(client, tokenizer, task(PROMPT, **OPENAI))
    assert checks(records) == [(True, "call of calculator"), (True, "answer")]
    said, first, second = client.chats[1][0][2:]
    assert [call["id"] for call in said["tool_calls"]] == ["c0", "c1"]
    assert (first["tool_call_id"], first["content"]) == ("c0", "42")
    assert (second["tool_call_id"], second["content"]) == ("c1", "9")
    assert records[0].tool_calls == two.tool_calls


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        (calls(("calculate", "{}")), 'there is no tool "calculate"'),
        (calls(("calculator", '{"expression"')), "a JSON object expected"),
        (calls(("calculator", "[]")), "a JSON object expected"),
        (calls(("calculator", "")), "arguments.expression"),
        (calls(("lookup", '{"table": "price", "key": "figs"}'), ("x", "{}")), 'no tool "x"'),
    ],
)
def test_a_wrong_call_is_told_and_the_loop_goes_on(
    scripted: Any, tokenizer: Any, task: Any, reply: Answer, detail: str
) -> None:
    """One wrong call makes the reply invalid."""
    client = scripted(reply, "42")
    records = measure_cell(client, tokenizer, task(PROMPT, **OPENAI))
    valid, told = checks(records)[0]
    assert not valid
    assert detail in told
    assert client.chats[1][0][-1]["content"].startswith("Error: ")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("  ", (False, "says nothing")),
        (Answer("It is", (9,), 5, 1, finish_reason="length"), (False, "cut at max tokens")),
        ("42", (True, "answer")),
    ],
)
def test_a_reply_without_a_call_ends_the_loop(
    scripted: Any, tokenizer: Any, task: Any, reply: Any, expected: tuple[bool, str]
) -> None:
    """It is an answer if it says something to its end."""
    records = measure_cell(scripted(reply), tokenizer, task(PROMPT, **OPENAI))
    assert checks(records) == [expected]


def test_steps_are_limited(scripted: Any, tokenizer: Any, task: Any) -> None:
    """A model that never answers is asked `max_steps` times."""
    limited = task(PROMPT, max_steps=3, **OPENAI)
    assert len(measure_cell(scripted(by=lambda _: CALL), tokenizer, limited)) == 3


def test_other_tools_are_another_prompt(scripted: Any, tokenizer: Any, task: Any) -> None:
    """The hash of what was sent covers them."""
    other = PROMPT.model_copy(update={"tools": ("lookup",)})
    hashes = {
        measure_cell(scripted("42"), tokenizer, task(prompt, **OPENAI))[0].prompt_sha256
        for prompt in (PROMPT, other)
    }
    assert len(hashes) == 2
