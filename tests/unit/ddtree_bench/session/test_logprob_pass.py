"""Which prompts are asked again, and which places of the repeated answers count."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from fakes import bench, cell_record, request_record, write_prompts

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.client.answers import TopTokens
from ddtree_bench.errors import RequestError
from ddtree_bench.findings import FindingCode
from ddtree_bench.hashing import json_sha256
from ddtree_bench.prompts import load_prompts
from ddtree_bench.records import Sampling
from ddtree_bench.session.launch import LaunchNotes, Live
from ddtree_bench.session.logprob_pass import LogprobStore, record_logprobs, recorded, same_context
from ddtree_bench.session.logprobs import answer_sha256
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.status import Status

ONE_ROUND = "workloads: {longform: {temperature: 0.7}}"


class FakeClient:
    """Answers with the same tokens over and over; keeps what it was asked."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = tokens
        self.asked: list[tuple[tuple[int, ...], Sampling]] = []

    def top_logprobs(self, input_ids, sampling, count):
        """One token below each said one."""
        self.asked.append((tuple(input_ids), sampling))
        return tuple(TopTokens(token, {token: -0.1, token + 1: -2.5}) for token in self.tokens)


class Refusing(FakeClient):
    """As a server that drafts does."""

    def top_logprobs(self, input_ids, sampling, count):
        """Refuse."""
        raise RequestError(Status.HTTP_ERROR, "HTTP 400 from /generate: not supported")


@pytest.fixture
def notes(tmp_path):
    return LaunchNotes(bench(tmp_path / "bench", ONE_ROUND), 1, tmp_path / "none.log", {})


@pytest.fixture
def store(tmp_path):
    return LogprobStore(tmp_path / "logprobs")


def live(notes, client) -> Live:
    tokenizer = PromptTokenizer.load(Path(notes.spec.server.tokenizer_path))
    return Live(server=None, client=client, tokenizer=tokenizer)


def rendered(notes, *messages: str) -> tuple[int, ...]:
    """Token ids of a conversation in which user and assistant take turns."""
    roles = ("user", "assistant")
    tokenizer = PromptTokenizer.load(Path(notes.spec.server.tokenizer_path))
    told = [{"role": roles[n % 2], "content": text} for n, text in enumerate(messages)]
    return tuple(tokenizer.render(told))


def answered(ids: tuple[int, ...], prompt_id: str, **changes):
    """A request whose prompt was rendered to these ids."""
    sha = json_sha256(list(ids))
    return request_record(prompt_id=prompt_id, prompt_sha256=sha, output_ids=(10, 11), **changes)


def places(*tokens: int) -> tuple[TopTokens, ...]:
    return tuple(TopTokens(token, {token: -0.1}) for token in tokens)


@pytest.mark.parametrize(
    ("again", "count"),
    [((1, 2, 3), 3), ((1, 9, 3), 2), ((9, 2, 3), 1), ((1, 2), 2), ((1, 2, 3, 4), 3)],
)
def test_places_count_up_to_the_first_difference(again, count):
    """Said was 1 2 3: after a difference the target thinks of another text, at it not yet."""
    assert len(same_context(places(*again), (1, 2, 3))) == count


def test_each_greedy_prompt_is_asked_once_for_what_was_said(notes, store):
    """Two repeats of p0: one request of as many tokens as the first answer had."""
    ids = rendered(notes, "Say the number 0.")
    cells = [
        MeasuredCell(cell_record(key=key), (answered(ids, "p0"),)) for key in ("a" * 64, "b" * 64)
    ]
    client = FakeClient(10, 11)
    record_logprobs(live(notes, client), notes, store, cells)
    assert [(asked, sampling.max_new_tokens) for asked, sampling in client.asked] == [(ids, 2)]
    found = list(recorded(store, notes.spec, cells))
    assert [(place.position, dict(place.top)) for place in found] == [
        (0, {10: -0.1, 11: -2.5}),
        (1, {11: -0.1, 12: -2.5}),
    ]
    assert {(place.workload, place.prompt_id, place.turn) for place in found} == {
        ("short", "p0", 0)
    }
    assert notes.logprob_requests == 1
    assert notes.logprob_s is not None


def test_a_recorded_place_is_not_asked_for_again(notes, store):
    """The next launch finds it in the store; another answer under the same key is another one."""
    ids = rendered(notes, "Say the number 0.")
    cells = [MeasuredCell(cell_record(), (answered(ids, "p0"),))]
    record_logprobs(live(notes, FakeClient(10, 11)), notes, store, cells)
    client = FakeClient(10, 11)
    record_logprobs(live(notes, client), notes, store, cells)
    assert client.asked == []
    other = answered(ids, "p0").model_copy(update={"output_ids": (10, 12)})
    record_logprobs(live(notes, client), notes, store, [MeasuredCell(cell_record(), (other,))])
    assert len(client.asked) == 1


def test_sampled_answers_are_not_asked_again(notes, store):
    """Workload `longform` samples: nothing of it is recorded."""
    ids = rendered(notes, "Say the number 0.")
    cell = cell_record(cell=cell_record().cell.model_copy(update={"workload": "longform"}))
    client = FakeClient(10, 11)
    record_logprobs(live(notes, client), notes, store, [MeasuredCell(cell, (answered(ids, "p0"),))])
    assert client.asked == []
    assert notes.logprob_s is None


def test_a_conversation_is_rendered_from_its_recorded_replies(tmp_path, store):
    """The second turn's prompt holds the reply of the first, which nobody is asked for again."""
    notes = LaunchNotes(bench(tmp_path / "b", ONE_ROUND), 1, tmp_path / "none.log", {})
    path = tmp_path / "b/prompts.jsonl"
    path.write_text('{"id": "talk", "turns": ["One?", "Two?"]}\n', encoding="utf-8")
    assert len(load_prompts(path)[0].turns) == 2
    first, second = rendered(notes, "One?"), rendered(notes, "One?", "abcd", "Two?")
    requests = (answered(first, "talk", turn=0), answered(second, "talk", turn=1))
    client = FakeClient(10, 11)
    record_logprobs(live(notes, client), notes, store, [MeasuredCell(cell_record(), requests)])
    assert [asked for asked, _ in client.asked] == [first, second]


def test_a_refusal_is_found_and_nothing_more(notes, store):
    """The cells stay as they are; the finding says what the server said."""
    ids = rendered(notes, "Say the number 0.")
    cells = [MeasuredCell(cell_record(), (answered(ids, "p0"),))]
    record_logprobs(live(notes, Refusing()), notes, store, cells)
    assert [finding.code for finding in notes.findings] == [FindingCode.NO_LOGPROBS]
    assert "not supported" in notes.findings[0].detail
    assert list(recorded(store, notes.spec, cells)) == []


def test_another_server_than_the_baseline_is_not_asked(notes, store):
    """Without workloads to record nothing is sent."""
    notes.spec = notes.spec.model_copy(update={"logprobs_of": ()})
    ids = rendered(notes, "Say the number 0.")
    client = FakeClient(10, 11)
    cells = [MeasuredCell(cell_record(), (answered(ids, "p0"),))]
    record_logprobs(live(notes, client), notes, store, cells)
    assert client.asked == []


def of_load(notes, concurrency: int, ids: tuple[int, ...], said: tuple[int, ...]) -> MeasuredCell:
    """A cell with so many in flight, its one answer to p0 with these ids."""
    cell = cell_record().cell.model_copy(update={"concurrency": concurrency})
    record = answered(ids, "p0", cell=cell).model_copy(update={"output_ids": said})
    return MeasuredCell(cell_record(cell=cell, key=f"{concurrency:064}"), (record,))


def at_loads(notes, *concurrency: int) -> None:
    """Let workload `short` be asked with so many in flight, of as many prompts."""
    write_prompts(Path(notes.spec.workloads["short"].prompts), max(concurrency))
    asked = notes.spec.workloads["short"].model_copy(update={"concurrency": concurrency})
    workloads = {**notes.spec.workloads, "short": asked}
    notes.spec = notes.spec.model_copy(update={"workloads": workloads})


@pytest.mark.parametrize(("loads", "first"), [((4, 16), (10, 11)), ((16, 4), (10, 12))])
def test_the_recorded_answer_is_the_first_of_the_spec(notes, store, loads, first):
    """4 goes before 16 as in the session's file, not after it as texts do; 16 first if asked so."""
    at_loads(notes, *loads)
    ids = rendered(notes, "Say the number 0.")
    cells = [of_load(notes, 16, ids, (10, 12)), of_load(notes, 4, ids, (10, 11))]
    record_logprobs(live(notes, FakeClient(*first)), notes, store, cells)
    found = list(recorded(store, notes.spec, cells))
    assert [place.position for place in found] == [0, 1]
    assert {place.answer_sha256 for place in found} == {answer_sha256(first)}


class Meeting(FakeClient):
    """Answers once as many requests are in flight as it waits for."""

    def __init__(self, parties: int, *tokens: int) -> None:
        super().__init__(*tokens)
        self.barrier = threading.Barrier(parties, timeout=10)

    def top_logprobs(self, input_ids, sampling, count):
        """Wait for the others."""
        self.barrier.wait()
        return super().top_logprobs(input_ids, sampling, count)


def test_places_are_asked_for_under_the_load_of_their_answer(notes, store):
    """Two answers of a cell with two in flight meet; alone, the first would wait for ever."""
    at_loads(notes, 2)
    texts = [rendered(notes, f"Say the number {n}.") for n in range(2)]
    cell = cell_record().cell.model_copy(update={"concurrency": 2})
    requests = tuple(answered(ids, f"p{n}", cell=cell) for n, ids in enumerate(texts))
    client = Meeting(2, 10, 11)
    cells = [MeasuredCell(cell_record(cell=cell), requests)]
    record_logprobs(live(notes, client), notes, store, cells)
    assert sorted(asked for asked, _ in client.asked) == sorted(texts)
    assert notes.logprob_requests == 2
