"""Tool loops: calls in plain text, their results, and how a loop ends."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_bench.client.answers import Answer
from ddtree_bench.prompts import Prompt
from ddtree_bench.records import RequestRecord
from ddtree_bench.status import Status
from ddtree_bench.workloads.run import measure_cell
from ddtree_bench.workloads.tool_loop import CORRECTION, Call, Solution, parse_reply

TASK = Prompt(id="t", turns=("What is 6 * 7?",), tools=("lookup", "calculator"), system="Hello.")
CALL = '{"tool": "calculator", "arguments": {"expression": "6 * 7"}}'
ANSWER = '{"answer": "42"}'


def checks(records: tuple[RequestRecord, ...]) -> list[tuple[bool, str]]:
    return [(r.check.valid, r.check.detail) for r in records if r.check is not None]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (CALL, Call("calculator", {"expression": "6 * 7"})),
        (f"```json\n{CALL}\n```", Call("calculator", {"expression": "6 * 7"})),
        (ANSWER + "}\n\nDone.", Solution("42")),
        (f"<think>{CALL}</think>\n{ANSWER}", Solution("42")),
        ('{"answer": 42}', Solution("42")),
        ("The answer is 42.", None),
        ('{"tool": "calculator"}', None),
        ('{"tool": 5, "arguments": {}}', None),
        ('{"answer": null}', None),
        ('["answer"]', None),
        ('{"tool": "calculator", "argum', None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_replies_are_calls_answers_or_neither(text: str, parsed: object) -> None:
    """A JSON object at the beginning decides; what follows it is ignored."""
    assert parse_reply(text) == parsed


def test_results_go_back_until_the_model_answers(scripted: Any, tokenizer: Any, task: Any) -> None:
    """A call, its result as the user's next message, then the answer."""
    client = scripted(CALL, ANSWER)
    records = measure_cell(client, tokenizer, task(TASK))
    assert checks(records) == [(True, "call of calculator"), (True, "answer")]
    assert [each.turn for each in records] == [0, 1]
    assert client.asked[1].endswith(f"assistant\n{CALL}\nuser\nResult: 42\nassistant\n")


def test_the_opening_shows_the_tools_with_worked_calls(
    scripted: Any, tokenizer: Any, task: Any
) -> None:
    """System message, the prompt's own first; an example of each tool in order; then the task."""
    client = scripted(ANSWER)
    measure_cell(client, tokenizer, task(TASK))
    opening = client.asked[0]
    assert opening.startswith("system\nHello.\nYou solve tasks with tools.")
    assert "- lookup: reads an entry" in opening
    assert "- weekday" not in opening
    assert opening.index("Result: 9") < opening.index("Result: 84")
    assert opening.endswith("user\nTask: What is 6 * 7?\nassistant\n")


def test_a_reply_that_is_no_call_is_corrected_once(
    scripted: Any, tokenizer: Any, task: Any
) -> None:
    """The first gets the fixed correction, the second ends the loop."""
    client = scripted("forty-two", "42!", ANSWER)
    records = measure_cell(client, tokenizer, task(TASK))
    assert checks(records) == [(False, "neither a call nor an answer")] * 2
    assert CORRECTION in client.asked[1]


@pytest.mark.parametrize(
    ("call", "valid", "message"),
    [
        ('{"tool": "calculate", "arguments": {}}', False, 'did you mean "calculator"?'),
        ('{"tool": "weekday", "arguments": {"date": "2024-01-01"}}', False, 'no tool "weekday"'),
        ('{"tool": "calculator", "arguments": {"sum": 1}}', False, "arguments.expression"),
        ('{"tool": "lookup", "arguments": {"table": "x", "key": "y"}}', True, "no table 'x'"),
    ],
)
def test_a_wrong_call_is_answered_with_its_error(
    scripted: Any, tokenizer: Any, task: Any, call: str, valid: bool, message: str
) -> None:
    """The loop goes on; a well-formed call without a result is still a valid call."""
    client = scripted(call, ANSWER)
    records = measure_cell(client, tokenizer, task(TASK))
    assert [each[0] for each in checks(records)] == [valid, True]
    assert "user\nError: " in client.asked[1]
    assert message in client.asked[1]


def test_steps_are_limited(scripted: Any, tokenizer: Any, task: Any) -> None:
    """A model that never answers is asked `max_steps` times."""
    records = measure_cell(scripted(by=lambda _: CALL), tokenizer, task(TASK, max_steps=3))
    assert len(records) == 3


def test_a_cut_reply_says_so(scripted: Any, tokenizer: Any, task: Any) -> None:
    """A call that max tokens cut is invalid for that reason."""
    cut = Answer('{"tool": "calc', (9,), 5, 1, finish_reason="length")
    records = measure_cell(scripted(cut, ANSWER), tokenizer, task(TASK))
    assert checks(records)[0] == (False, "cut at max tokens")


def test_a_failed_request_ends_the_loop(scripted: Any, tokenizer: Any, task: Any) -> None:
    """A failure has a status and no check: nothing was answered."""
    records = measure_cell(scripted(CALL, Status.STREAM_ERROR), tokenizer, task(TASK))
    assert [each.status for each in records] == [Status.OK, Status.STREAM_ERROR]
    assert records[1].check is None


def test_a_recorded_loop_goes_on_with_the_recorded_calls(
    scripted: Any, tokenizer: Any, task: Any
) -> None:
    """Their results come back; the check judges what this server said."""
    other = '{"tool": "calculator", "arguments": {"expression": "1 + 1"}}'
    prompt = TASK.model_copy(update={"replies": (CALL, ANSWER)})
    client = scripted("no call", other)
    records = measure_cell(client, tokenizer, task(prompt, history="recorded"))
    assert "Result: 42" in client.asked[1]
    # the recorded answer ends the loop after the second request
    assert [valid for valid, _ in checks(records)] == [False, True]
