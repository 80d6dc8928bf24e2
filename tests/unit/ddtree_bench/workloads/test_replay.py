"""Conversations with recorded results: what is asked, judged, and told after a wrong reply."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ddtree_bench.client.answers import Answer
from ddtree_bench.prompts import Prompt
from ddtree_bench.records import RequestRecord
from ddtree_bench.status import Status
from ddtree_bench.workloads.hold import most_requests
from ddtree_bench.workloads.run import measure_cell

AREA = '{"tool": "area", "arguments": {"base": 3}}'
NAME = '{"tool": "name", "arguments": {"of": "it"}}'
DONE = '{"answer": "So it is."}'
FIELDS: dict[str, Any] = {
    "id": "t",
    "system": "Functions.",
    "turns": ["First?", "Second?"],
    "recorded_calls": [
        [{"tool": "area", "arguments": {"base": [3], "unit": ["", "m"]}, "result": "9"}],
        [{"tool": "name", "arguments": {"of": ["it"]}, "result": "tree"}],
    ],
}
PROMPT = Prompt.model_validate(FIELDS)


def checks(records: tuple[RequestRecord, ...]) -> list[tuple[bool, str]]:
    return [(r.check.valid, r.check.detail) for r in records if r.check is not None]


def test_right_calls_get_their_results(scripted: Any, tokenizer: Any, task: Any) -> None:
    """A call, its result, an answer; then the next turn, with all of it before."""
    client = scripted(AREA, DONE, NAME, DONE)
    records = measure_cell(client, tokenizer, task(PROMPT))
    assert checks(records) == [
        (True, "call of area"),
        (True, "answer"),
        (True, "call of name"),
        (True, "answer"),
    ]
    assert client.asked[3].endswith(
        f"user\nFirst?\nassistant\n{AREA}\nuser\nResult: 9\nassistant\n{DONE}\n"
        f"user\nSecond?\nassistant\n{NAME}\nuser\nResult: tree\nassistant\n"
    )


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        (NAME, "the call of 'name' is not the one expected"),
        ('{"tool": "area", "arguments": {"base": 4}}', "the call of 'area' is not the one"),
        (DONE, "answers where 'area' is to be called"),
        ("Three.", "neither a call nor an answer"),
        (Answer('{"tool"', (9,), 5, 1, finish_reason="length"), "cut at max tokens"),
    ],
)
def test_after_a_wrong_reply_the_right_call_is_told(
    scripted: Any, tokenizer: Any, task: Any, reply: Any, detail: str
) -> None:
    """It is wrong by itself; what is asked next is the same as after the right one."""
    client = scripted(reply, DONE, NAME, DONE)
    right = scripted(AREA, DONE, NAME, DONE)
    records = measure_cell(client, tokenizer, task(PROMPT))
    measure_cell(right, tokenizer, task(PROMPT))
    valid, told = checks(records)[0]
    assert not valid
    assert detail in told
    assert [valid for valid, _ in checks(records)[1:]] == [True] * 3
    assert client.asked == right.asked


def test_a_call_is_wrong_where_an_answer_is_due(scripted: Any, tokenizer: Any, task: Any) -> None:
    """The turn ends all the same, with an answer in its place."""
    client = scripted(AREA, AREA, NAME, DONE)
    records = measure_cell(client, tokenizer, task(PROMPT))
    assert checks(records)[1] == (False, "calls 'area' where an answer is due")
    assert 'assistant\n{"answer": "Done."}\nuser\nSecond?' in client.asked[2]


def test_a_turn_is_limited_in_steps(scripted: Any, tokenizer: Any, task: Any) -> None:
    """What is left of a turn is told, and the next turn is asked."""
    client = scripted(AREA, NAME)
    limited = task(PROMPT, max_steps=1)
    assert len(measure_cell(client, tokenizer, limited)) == 2
    assert 'Result: 9\nassistant\n{"answer": "Done."}\nuser\nSecond?' in client.asked[1]
    assert most_requests(PROMPT, limited.workload) == 2
    assert most_requests(PROMPT, task(PROMPT).workload) == 4


def test_a_failed_request_ends_the_conversation(scripted: Any, tokenizer: Any, task: Any) -> None:
    """A failure has a status and no check."""
    records = measure_cell(scripted(AREA, Status.STREAM_ERROR), tokenizer, task(PROMPT))
    assert [each.status for each in records] == [Status.OK, Status.STREAM_ERROR]
    assert len(checks(records)) == 1


def test_recorded_replies_decide_what_stands_before(
    scripted: Any, tokenizer: Any, task: Any
) -> None:
    """With `history: recorded`, the answer of the record is kept, the server's own is judged."""
    recorded = PROMPT.model_copy(update={"replies": (AREA, '{"answer": "9"}', NAME, DONE)})
    client = scripted("no", "no", NAME, DONE)
    records = measure_cell(client, tokenizer, task(recorded, history="recorded"))
    assert [valid for valid, _ in checks(records)] == [False, False, True, True]
    assert 'assistant\n{"answer": "9"}\nuser\nSecond?' in client.asked[2]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"turns": ["One?"]}, "of 2 turns, there are 1"),
        ({"tools": ["lookup"]}, "leave `tools` out"),
    ],
)
def test_recorded_calls_must_fit(changes: dict[str, Any], told: str) -> None:
    """A list a turn, and no tools that run."""
    with pytest.raises(ValidationError, match=told):
        Prompt.model_validate(FIELDS | changes)
