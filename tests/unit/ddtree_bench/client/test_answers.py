"""What recorded and made-up bodies come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddtree_bench.client.answers import (
    DONE,
    Add,
    Answer,
    Inbox,
    Message,
    add_chat,
    add_generated,
    cut_at_stop,
    error_message,
    incomplete,
    read,
    top_tokens,
    whole_answer_tokens,
)
from ddtree_bench.client.sse import SseParser
from ddtree_bench.errors import RequestError
from ddtree_bench.records import Event, SpecCounts, ToolCall, TreeCounts
from ddtree_bench.status import Status

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sglang-0.5.17-h200"


def recorded(name: str, add: Add) -> Answer:
    """A recorded body as an answer; event number n arrives n seconds after the request."""
    text = (FIXTURES / name).read_text(encoding="utf-8")
    if name.endswith(".sse"):
        data = [event.data for event in SseParser().feed(text.encode())]
        assert data.pop() == DONE
        messages = [Message(float(at), each) for at, each in enumerate(data)]
    else:
        messages = [Message(None, text)]
    answer, error = read(messages, add)
    assert error is None
    return answer


def generated(meta: dict[str, Any], ids: list[int] | None = None, at_s: float = 0.0) -> Message:
    """A message of the native route."""
    body: dict[str, Any] = {"text": "x" * len(ids or []), "meta_info": meta}
    if ids is not None:
        body["output_ids"] = ids
    return Message(at_s, json.dumps(body))


def error_of(message: Message, add: Add) -> RequestError:
    _, error = read([message], add)
    assert error is not None
    return error


def test_the_native_stream_gives_ids_counts_and_events() -> None:
    """Ids and counts are the last event's; each event says how many tokens there are so far."""
    answer = recorded("dflash/generate_stream.sse", add_generated)
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (5, 30, 4)
    assert answer.output_ids is not None
    assert answer.output_ids[:3] == (7042, 30, 198)
    assert len(answer.output_ids) == 30
    assert answer.text == " Paris.\n\nThe answer is: 2018-01-22 12:11:23."
    assert answer.finish_reason == "stop"
    assert [event.tokens for event in answer.events[:3]] == [1, 3, 6]
    assert answer.events[-1].tokens == 30


def test_speculation_is_read_from_the_last_event() -> None:
    """The recorded counters agree with each other."""
    answer = recorded("dflash/generate_stream.sse", add_generated)
    # 17 + 3 + 2 = 22 steps; 17 × 0 + 3 × 1 + 2 × 2 = 7 accepted; 22 × 15 = 330 proposed
    assert answer.spec == SpecCounts(
        verify_steps=22, accepted_drafts=7, proposed_drafts=330, histogram=(17, 3, 2)
    )
    assert answer.tree is None


def test_plain_decoding_has_no_speculation() -> None:
    """What a server does not say is None, not 0."""
    answer = recorded("ar/generate_stream.sse", add_generated)
    assert answer.spec is None
    assert answer.tree is None


def test_the_chat_stream_counts_by_usage() -> None:
    """Events are the chunks with usage; the closing chunk, which carries no token, is none."""
    answer = recorded("dflash/chat_stream.sse", add_chat)
    assert (answer.prompt_tokens, answer.completion_tokens) == (46, 64)
    assert [event.tokens for event in answer.events[:4]] == [1, 10, 17, 18]
    # the first chunk (number 0) holds the role only
    assert answer.events[0].at_s == 1.0
    assert answer.finish_reason == "length"
    assert answer.text == recorded("dflash/chat_meta.json", add_chat).text
    assert answer.output_ids is None
    assert answer.cached_tokens is None


def test_a_chat_body_with_meta_info_has_the_counters() -> None:
    """`return_meta_info` adds cached tokens and speculation to the OpenAI answer."""
    answer = recorded("dflash/chat_meta.json", add_chat)
    assert answer.spec is not None
    # 15 steps, 51 accepted drafts
    assert (answer.spec.verify_steps, answer.spec.accepted_drafts) == (15, 51)
    assert answer.cached_tokens == 45
    assert answer.events == ()
    assert recorded("ar/chat_spec.json", add_chat).spec is None


@pytest.mark.parametrize("name", ["spec_accept_histogram", "spec_correct_drafts_histogram"])
@pytest.mark.parametrize("accepted", ["spec_accepted_drafts", "spec_num_correct_drafts"])
def test_both_generations_of_names_are_read(name: str, accepted: str) -> None:
    """Old and new names of the counters mean the same."""
    meta = {"completion_tokens": 3, "spec_verify_ct": 2, accepted: 1, name: [1, 1]}
    answer = add_generated(Answer(), generated(meta, [5, 6, 7]))
    assert answer.spec == SpecCounts(verify_steps=2, accepted_drafts=1, histogram=(1, 1))


def test_speculation_without_histogram_is_not_measured() -> None:
    """Half of the counters is no measurement; a measured zero is one."""
    half = {"completion_tokens": 3, "spec_verify_ct": 2, "spec_accepted_drafts": 1}
    assert add_generated(Answer(), generated(half, [5, 6, 7])).spec is None
    zero = {**half, "spec_accepted_drafts": 0, "spec_accept_histogram": [2]}
    spec = add_generated(Answer(), generated(zero, [5, 6, 7])).spec
    assert spec is not None
    assert spec.accepted_drafts == 0


def test_tree_counters_are_read() -> None:
    """`ddtree_*` becomes TreeCounts; what is missing of it stays None."""
    meta = {"completion_tokens": 1, "ddtree_verify_width": 8, "ddtree_nodes_by_depth": [4, 3]}
    answer = add_generated(Answer(), generated(meta, [5]))
    assert answer.tree == TreeCounts(verify_width=8, nodes_by_depth=(4, 3))


def test_messages_may_hold_only_what_is_new() -> None:
    """Ids that are fewer than the count by what came before are appended."""
    parts = [
        generated({"completion_tokens": 2}, [5, 6], 0.1),
        generated({"completion_tokens": 3}, [7], 0.2),
    ]
    answer, error = read(parts, add_generated)
    assert error is None
    assert answer.output_ids == (5, 6, 7)
    assert answer.text == "xxx"
    assert answer.events == (Event(at_s=0.1, tokens=2), Event(at_s=0.2, tokens=3))


def test_ids_and_counts_that_differ_are_refused() -> None:
    """A server that counts other tokens than it sends cannot be measured."""
    error = error_of(generated({"completion_tokens": 9}, [5, 6]), add_generated)
    assert error.status is Status.BAD_COUNTS
    assert "2 output_ids" in str(error)
    assert "is 9" in str(error)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('{"error": {"message": "out of blocks"}}', "out of blocks"),
        ('{"object": "error", "message": "bad", "code": 400}', "bad"),
        ('{"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "m"}}}', "m"),
    ],
)
def test_an_error_inside_an_answer_is_a_stream_error(data: str, said: str) -> None:
    """HTTP 200 does not hide what the server says."""
    error = error_of(Message(0.0, data), add_generated)
    assert error.status is Status.STREAM_ERROR
    assert said in str(error)


@pytest.mark.parametrize(
    ("data", "add", "place"),
    [
        ("not json", add_generated, "not JSON"),
        ("[]", add_generated, "the answer"),
        ('{"text": "a"}', add_generated, "meta_info"),
        ('{"text": "", "meta_info": {"completion_tokens": -1}}', add_generated, "completion"),
        ('{"text": "", "meta_info": {"prompt_tokens": "5"}}', add_generated, "prompt_tokens"),
        ('{"usage": {}}', add_chat, "choices"),
        ('{"choices": [{"delta": {"content": 5}}]}', add_chat, "choices.0.delta.content"),
    ],
)
def test_another_shape_is_malformed_and_named(data: str, add: Add, place: str) -> None:
    """The message names the field that is wrong."""
    error = error_of(Message(0.0, data), add)
    assert error.status is Status.MALFORMED
    assert place in str(error)


def test_what_came_before_a_bad_message_is_kept() -> None:
    """A stream that breaks leaves the tokens that had arrived."""
    first = generated({"completion_tokens": 2}, [5, 6], 0.1)
    answer, error = read([first, Message(0.2, "{")], add_generated)
    assert error is not None
    assert answer.output_ids == (5, 6)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"completion_tokens": None}, Status.NO_USAGE),
        ({"prompt_tokens": None}, Status.NO_USAGE),
        ({"completion_tokens": 0}, Status.NO_TOKENS),
        ({"finish_reason": None}, Status.MALFORMED),
    ],
)
def test_an_incomplete_answer_is_named(changes: dict[str, Any], status: Status) -> None:
    """Usage is never estimated, no tokens are no success, an open end is none."""
    whole: dict[str, Any] = {"prompt_tokens": 5, "completion_tokens": 3, "finish_reason": "stop"}
    assert incomplete(Answer(**whole)) is None
    error = incomplete(Answer(**{**whole, **changes}))
    assert error is not None
    assert error.status is status


def test_tokens_after_the_stop_token_are_cut_from_the_recorded_answer() -> None:
    """The recorded answer has 32 ids and its stop token (id 2) in place 30."""
    answer = recorded("dflash/generate.json", add_generated)
    cut = cut_at_stop(answer, {2}, lambda ids: f"text of {len(ids)}")
    assert answer.output_ids is not None
    assert answer.output_ids[28:] == (30, 2, 198, 1)
    assert cut.output_ids == answer.output_ids[:30]
    # 32 − 30 = 2 tokens came after the end
    assert (cut.completion_tokens, cut.overshoot_tokens) == (30, 2)
    assert cut.text == "text of 30"
    assert (answer.finish_reason, cut.finish_reason) == ("length", "stop")
    assert cut.spec == answer.spec


def test_events_are_capped_at_the_cut() -> None:
    """The event that crosses the cut counts up to it, later ones are dropped."""
    events = tuple(Event(at_s=n / 10, tokens=t) for n, t in enumerate((1, 4, 6, 8), 1))
    answer = Answer(output_ids=(9, 9, 9, 9, 2, 9, 9, 9), completion_tokens=8, events=events)
    cut = cut_at_stop(answer, {2, 3}, lambda ids: "")
    # 5 tokens are kept: 1, 4, then 6 capped to 5; 8 would add nothing
    assert [(event.at_s, event.tokens) for event in cut.events] == [(0.1, 1), (0.2, 4), (0.3, 5)]


def test_an_answer_that_ends_at_its_stop_token_keeps_its_text() -> None:
    """Nothing is cut, and the text is the server's own."""
    answer = Answer(text="own", output_ids=(9, 2), completion_tokens=2, finish_reason="length")
    cut = cut_at_stop(answer, {2}, lambda ids: "decoded")
    assert (cut.text, cut.overshoot_tokens, cut.finish_reason) == ("own", 0, "stop")


@pytest.mark.parametrize("ids", [None, (), (9, 8)])
def test_without_a_stop_token_nothing_changes(ids: tuple[int, ...] | None) -> None:
    """No ids, or none that stops: the answer is returned as it is."""
    answer = Answer(text="a", output_ids=ids, finish_reason="length")
    assert cut_at_stop(answer, {2}, lambda ids: "") is answer


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dflash/generate_logprob.json", "does not support return_logprob"),
        ("dflash/chat_logprobs.json", "does not support return_logprob"),
        ("ar/too_long.json", "longer than the model's context length"),
        ("ar/unknown_path.txt", "Not Found"),
    ],
)
def test_error_bodies_of_both_shapes_are_read(name: str, said: str) -> None:
    """The server's own sentence is found in each recorded error body."""
    message = error_message((FIXTURES / name).read_text(encoding="utf-8"))
    assert said in message
    assert "{" not in message


@pytest.mark.parametrize("body", ["plain text\n", '["list"]', '{"other": 1}'])
def test_an_unknown_error_body_is_shown_as_it_is(body: str) -> None:
    """Nothing is hidden because its shape is unknown."""
    assert error_message(body) == body.strip()


def inbox_of(*messages: Message) -> Inbox:
    inbox = Inbox()
    for message in messages:
        inbox.put(message.at_s, message.data)
    return inbox


@pytest.mark.parametrize("name", ["ar/generate_stream.sse", "dflash/generate_stream.sse"])
def test_a_thinned_stream_reads_as_the_whole_one(name: str) -> None:
    """Of a recorded native stream one message is kept, and the answer is the same in every part."""
    data = SseParser().feed((FIXTURES / name).read_bytes())[:-1]
    messages = [Message(float(at), event.data) for at, event in enumerate(data)]
    inbox = inbox_of(*messages)
    assert len(messages) > 5
    assert len(inbox.messages) == 1
    assert read(inbox.messages, add_generated, inbox.events) == read(messages, add_generated)


def test_the_chat_stream_is_kept_whole() -> None:
    """Its messages hold only what is new: none repeats another."""
    data = SseParser().feed((FIXTURES / "dflash/chat_stream.sse").read_bytes())[:-1]
    inbox = inbox_of(*(Message(0.0, event.data) for event in data))
    assert len(inbox.messages) == len(data)
    assert inbox.events == []


def test_messages_of_new_tokens_are_kept() -> None:
    """The second message does not hold the ids of the first, so that both are needed."""
    parts = [
        generated({"completion_tokens": 2}, [5, 6], 0.1),
        generated({"completion_tokens": 3}, [7], 0.2),
        generated({"completion_tokens": 4}, [8], 0.3),
    ]
    assert inbox_of(*parts).messages == parts


def test_nothing_is_dropped_after_an_error() -> None:
    """An error in the middle is still there to be read, whatever follows it."""
    parts = [
        generated({"completion_tokens": 1}, [5], 0.1),
        generated({"completion_tokens": 2}, [5, 6], 0.2),
        Message(0.3, '{"error": {"message": "lost"}}'),
        generated({"completion_tokens": 3}, [5, 6, 7], 0.4),
        generated({"completion_tokens": 4}, [5, 6, 7, 8], 0.5),
    ]
    inbox = inbox_of(*parts)
    assert inbox.events == [Event(at_s=0.1, tokens=1)]
    answer, error = read(inbox.messages, add_generated, inbox.events)
    assert error is not None
    assert error.status is Status.STREAM_ERROR
    assert answer.events == (Event(at_s=0.1, tokens=1), Event(at_s=0.2, tokens=2))


def test_a_message_without_new_tokens_is_no_event() -> None:
    """The time of a count is that of the first message that says it."""
    parts = [generated({"completion_tokens": 1}, [5], at_s) for at_s in (0.1, 0.2, 0.3)]
    inbox = inbox_of(*parts)
    answer, _ = read(inbox.messages, add_generated, inbox.events)
    assert answer.events == (Event(at_s=0.1, tokens=1),)


@pytest.mark.parametrize(
    ("data", "tokens"),
    [
        ('{"output_ids":[],"meta_info":{"completion_tokens":0}}', 0),
        ('{"output_ids": [ 7, 8 ], "meta_info": {"completion_tokens": 2}}', 2),
        ('{"output_ids":[7],"meta_info":{"completion_tokens":2}}', None),
        ('{"output_ids":null,"meta_info":{"histogram":[1],"completion_tokens":1}}', None),
        ('{"text":"\\"output_ids\\":[7]","meta_info":{"completion_tokens":1}}', None),
        ('{"output_ids":[7],"meta_info":{"completion_tokens":null}}', None),
    ],
)
def test_a_whole_answer_is_told_without_parsing(data: str, tokens: int | None) -> None:
    """Ids are counted in the text; keys inside a string, null and fewer ids are no whole answer."""
    assert whole_answer_tokens(data) == tokens


def test_recorded_log_probabilities_are_read():
    """Plain decoding of 0.5.17: 8 tokens, each the first choice of the two at its place."""
    text = (FIXTURES / "ar/generate_logprob.json").read_text(encoding="utf-8")
    places = top_tokens(text)
    assert [place.token for place in places] == [7042, 30, 198, 198, 504, 2988, 314, 42]
    assert places[0].nats == pytest.approx({7042: -0.27023, 260: -2.70773}, abs=1e-5)
    assert all(place.nats[place.token] == max(place.nats.values()) for place in places)


def test_impossible_tokens_have_no_log_probability():
    """A grammar makes tokens impossible, which JSON writes as null; rounding above 0 is 0."""
    meta = {"output_top_logprobs": [[[1e-9, 7, None], [None, 8, None]], None]}
    places = top_tokens(json.dumps({"output_ids": [7, 9], "meta_info": meta}))
    assert [place.nats for place in places] == [{7: 0.0}, {}]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"output_ids": [7], "meta_info": {}}, Status.MALFORMED),
        ({"output_ids": [7], "meta_info": {"output_top_logprobs": []}}, Status.BAD_COUNTS),
        ({"error": {"message": "no"}}, Status.STREAM_ERROR),
    ],
)
def test_log_probabilities_of_another_shape_are_refused(body, status):
    """What cannot be laid beside the answer's ids is no log probability of it."""
    with pytest.raises(RequestError) as caught:
        top_tokens(json.dumps(body))
    assert caught.value.status is status


def call_piece(index: int, arguments: object, name: str | None = None) -> dict[str, Any]:
    """A piece of a tool call as SGLang 0.5.17 declares it."""
    number = f"call_{index}" if name else None
    function = {"name": name, "arguments": arguments}
    return {"id": number, "index": index, "type": "function", "function": function}


def test_streamed_tool_calls_are_put_together() -> None:
    """A piece with a name begins a call; those without go on with the last one."""
    pieces = [
        call_piece(0, "", "convert"),
        call_piece(0, '{"from": '),
        call_piece(0, '"km"}'),
        call_piece(1, "{}", "lookup"),
    ]
    messages = [
        Message(1.0, json.dumps({"choices": [{"delta": {"content": None, "tool_calls": [piece]}}]}))
        for piece in pieces
    ]
    answer, error = read(messages, add_chat)
    assert error is None
    assert answer.tool_calls == (
        ToolCall(id="call_0", name="convert", arguments='{"from": "km"}'),
        ToolCall(id="call_1", name="lookup", arguments="{}"),
    )
    assert answer.text == ""


@pytest.mark.parametrize("arguments", ['{"a": "ä"}', {"a": "ä"}])
def test_whole_tool_calls_are_read(arguments: object) -> None:
    """Text stays as it is, an object becomes JSON; no calls is the common case."""
    body = {
        "choices": [{"message": {"content": "", "tool_calls": [call_piece(0, arguments, "f")]}}]
    }
    answer = add_chat(Answer(), Message(None, json.dumps(body)))
    assert answer.tool_calls == (ToolCall(id="call_0", name="f", arguments='{"a": "ä"}'),)
    assert recorded("ar/chat_tools.json", add_chat).tool_calls == ()
