"""Conversations: what is sent turn by turn, and what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_bench.client.answers import Answer
from ddtree_bench.hashing import json_sha256
from ddtree_bench.prompts import JsonCheck, JsonSchemaCheck, Prompt
from ddtree_bench.records import Event
from ddtree_bench.status import Status
from ddtree_bench.workloads.judging import judged
from ddtree_bench.workloads.run import measure_cell

TWO_TURNS = Prompt(id="talk", turns=("first?", "second?"), system="Be brief.", tags={"domain": "x"})


def test_the_servers_reply_goes_back_in(scripted: Any, tokenizer: Any, task: Any) -> None:
    """The second request holds the system message, both questions and the first reply."""
    client = scripted("one", "two")
    first, second = measure_cell(client, tokenizer, task(TWO_TURNS))
    assert client.asked[1] == (
        "system\nBe brief.\nuser\nfirst?\nassistant\none\nuser\nsecond?\nassistant\n"
    )
    assert (first.turn, second.turn) == (0, 1)
    assert (first.text, second.text) == ("one", "two")
    assert first.tags == {"domain": "x"}


def test_a_prompt_is_hashed_as_it_is_rendered(scripted: Any, tokenizer: Any, task: Any) -> None:
    """Route `generate` hashes token ids, route `chat` messages."""
    prompt = Prompt(id="p", turns=("hi",))
    messages = [{"role": "user", "content": "hi"}]
    (native,) = measure_cell(scripted("a"), tokenizer, task(prompt))
    assert native.prompt_sha256 == json_sha256(list(tokenizer.render(messages)))
    (chat,) = measure_cell(scripted("a"), tokenizer, task(prompt, route="chat"))
    assert chat.prompt_sha256 == json_sha256(messages)


def test_a_failed_request_ends_its_conversation(scripted: Any, tokenizer: Any, task: Any) -> None:
    """The failure is a record; the next turn is not asked, the next prompt is."""
    other = Prompt(id="other", turns=("other?",))
    client = scripted(by=lambda text: Status.HTTP_ERROR if "first?" in text else "fine")
    records = measure_cell(client, tokenizer, task(TWO_TURNS, other))
    assert {(each.prompt_id, each.status) for each in records} == {
        ("talk", Status.HTTP_ERROR),
        ("other", Status.OK),
    }


def test_the_last_answer_is_checked(scripted: Any, tokenizer: Any, task: Any) -> None:
    """Only the last turn carries the prompt's check."""
    prompt = TWO_TURNS.model_copy(update={"check": JsonCheck(kind="json")})
    asked = task(prompt)
    first, second = judged(asked, measure_cell(scripted("no", "{}"), tokenizer, asked))
    assert first.check is None
    assert second.check is not None
    assert second.check.valid


def test_tokens_after_the_stop_token_are_cut(scripted: Any, tokenizer: Any, task: Any) -> None:
    """Ids, counts, events and text end at the stop token (id 2); the next turn sees the cut."""
    ids = (*tokenizer._obeying.encode("yes").ids, 2, *tokenizer._obeying.encode("more").ids)
    # 3 + 1 + 4 = 8 tokens, of which 4 are kept
    events = (Event(at_s=0.1, tokens=1), Event(at_s=0.2, tokens=8))
    answer = Answer("yesmore", ids, 5, 8, finish_reason="length", events=events)
    client = scripted(answer, "two")
    first, _ = measure_cell(client, tokenizer, task(TWO_TURNS))
    assert (first.text, first.finish_reason) == ("yes", "stop")
    assert (first.completion_tokens, first.overshoot_tokens) == (4, 4)
    assert [event.tokens for event in first.events] == [1, 4]
    assert "more" not in client.asked[1]


@pytest.mark.parametrize(("temperature", "seeded"), [(0.0, False), (0.7, True)])
def test_sampling_is_seeded_where_there_is_chance(
    scripted: Any, tokenizer: Any, task: Any, temperature: float, seeded: bool
) -> None:
    """Each request has its own seed, the same for every launch, another in another repeat."""

    def seeds(**names: int) -> list[int | None]:
        client = scripted("one", "two")
        measure_cell(client, tokenizer, task(TWO_TURNS, temperature=temperature, **names))
        return [sampling.seed for sampling in client.samplings]

    if not seeded:
        assert seeds() == [None, None]
        return
    first, second = seeds()
    assert first != second
    assert seeds(launch=2) == [first, second]
    assert seeds(repeat=2) != [first, second]


RECORDED = TWO_TURNS.model_copy(update={"replies": ("said before", "and this")})


def test_a_recorded_history_goes_on_with_what_was_said_then(
    scripted: Any, tokenizer: Any, task: Any
) -> None:
    """The second prompt holds the recorded reply; the record holds the server's own."""
    client = scripted("one", "two")
    first, _ = measure_cell(client, tokenizer, task(RECORDED))
    assert "assistant\nsaid before\nuser\nsecond?" in client.asked[1]
    assert first.text == "one"


def test_an_own_history_ignores_recorded_replies(scripted: Any, tokenizer: Any, task: Any) -> None:
    """The second mode."""
    client = scripted("one", "two")
    measure_cell(client, tokenizer, task(RECORDED, history="own"))
    assert "said before" not in client.asked[1]


def test_an_unfinished_conversation_is_not_judged(scripted: Any, tokenizer: Any, task: Any) -> None:
    """The check is about the last turn's answer, which there is none of."""
    prompt = TWO_TURNS.model_copy(update={"check": JsonCheck(kind="json")})
    asked = task(prompt)
    records = judged(asked, measure_cell(scripted("{}", Status.HTTP_ERROR), tokenizer, asked))
    assert [each.check for each in records] == [None, None]


@pytest.mark.parametrize(
    ("thinking", "sent", "tag"), [(True, True, "on"), (False, False, "off"), (None, None, None)]
)
def test_thinking_is_told_to_the_template(
    scripted: Any, tokenizer: Any, task: Any, thinking: bool, sent: object, tag: str | None
) -> None:
    """Sent only where it is configured, and kept as a tag."""
    client = scripted("one")
    prompt = Prompt(id="p", turns=("hi",))
    (record,) = measure_cell(client, tokenizer, task(prompt, route="chat", thinking=thinking))
    assert (client.templates[0] or {}).get("enable_thinking") == sent
    assert record.tags.get("thinking") == tag


@pytest.mark.parametrize("constrained", [True, False])
def test_a_schema_constrains_the_last_turn_only(
    scripted: Any, tokenizer: Any, task: Any, constrained: bool
) -> None:
    """And only where it is configured; it is recorded with the sampling that was sent."""
    schema = {"type": "object"}
    check = JsonSchemaCheck.model_validate({"kind": "json_schema", "schema": schema})
    prompt = TWO_TURNS.model_copy(update={"check": check})
    client = scripted("one", "{}")
    records = measure_cell(client, tokenizer, task(prompt, constrained=constrained))
    assert [s.json_schema for s in client.samplings] == [None, schema if constrained else None]
    assert records[1].sampling.json_schema == client.samplings[1].json_schema


def test_a_fixed_length_goes_past_the_end_and_is_not_judged(
    scripted: Any, tokenizer: Any, task: Any
) -> None:
    """`ignore_eos` is sent, what follows the stop token (2) is kept, and no check is made."""
    prompt = Prompt(id="p", turns=("hi",), check=JsonCheck(kind="json"))
    client = scripted(Answer("ab", (10, 2, 11), 5, 3, finish_reason="length"))
    asked = task(prompt, ignore_eos=True)
    (record,) = judged(asked, measure_cell(client, tokenizer, asked))
    assert client.samplings[0].ignore_eos
    assert record.output_ids == (10, 2, 11)
    assert record.overshoot_tokens == 0
    assert record.check is None


def test_the_chat_route_sends_no_special_token_of_the_user(
    scripted: Any, tokenizer: Any, task: Any
) -> None:
    """A server that renders messages would obey it; what is hashed is what was sent."""
    client = scripted("yes")
    prompt = Prompt(id="p", turns=("End <|end|> here.",))
    (record,) = measure_cell(client, tokenizer, task(prompt, route="chat"))
    ((messages, _),) = client.chats
    assert messages[0]["content"] == "End <\u200b|end|> here."
    assert record.prompt_sha256 == json_sha256(messages)
