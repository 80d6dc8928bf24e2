"""One cell: order, concurrency, and how it ends early."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from ddtree_bench.prompts import Prompt
from ddtree_bench.status import Status
from ddtree_bench.workloads.run import arrivals, measure_cell, ordered, recorded_arrivals

PROMPTS = tuple(Prompt(id=f"p{number}", turns=(f"q{number}?",)) for number in range(6))


def ids(prompts: tuple[Prompt, ...]) -> list[str]:
    return [prompt.id for prompt in prompts]


def test_the_order_is_that_of_seed_and_repeat() -> None:
    """The same for every order of the file; another repeat has another order.

    6! = 720 orders: the two repeats were looked at once, chance plays no part afterwards.
    """
    assert ordered(PROMPTS, 0, 1) == ordered(PROMPTS[::-1], 0, 1)
    assert sorted(ids(ordered(PROMPTS, 0, 1))) == ids(PROMPTS)
    assert ordered(PROMPTS, 0, 1) != ordered(PROMPTS, 0, 2)


def test_launches_send_the_same_order(scripted: Any, tokenizer: Any, task: Any) -> None:
    """Pairs of servers and launches meet the same prompts in the same place."""
    first, second = (
        [
            record.prompt_id
            for record in measure_cell(scripted(by=str), tokenizer, task(*PROMPTS, launch=launch))
        ]
        for launch in (1, 2)
    )
    assert first == second == ids(ordered(PROMPTS, 0, 1))


def test_as_many_are_in_flight_as_the_cell_says(scripted: Any, tokenizer: Any, task: Any) -> None:
    """Three threads meet at a barrier of three, twice: 6 prompts in 2 rounds."""
    barrier = threading.Barrier(3, timeout=10)

    def meet(_: str) -> str:
        barrier.wait()
        return "ok"

    records = measure_cell(scripted(by=meet), tokenizer, task(*PROMPTS, concurrency=3))
    assert len(records) == 6
    assert not barrier.broken
    assert [each.prompt_id for each in records] == ids(ordered(PROMPTS, 0, 1))


@pytest.mark.parametrize("status", [Status.UNREACHABLE, Status.HUNG])
def test_a_lost_server_ends_the_cell(
    scripted: Any, tokenizer: Any, task: Any, status: Status
) -> None:
    """What was not sent has no record."""
    client = scripted("fine", status)
    records = measure_cell(client, tokenizer, task(*PROMPTS))
    assert [each.status for each in records] == [Status.OK, status]


@pytest.mark.parametrize("status", [Status.HTTP_ERROR, Status.NO_TOKENS, Status.MALFORMED])
def test_other_failures_do_not(scripted: Any, tokenizer: Any, task: Any, status: Status) -> None:
    """The server answers: the other prompts are asked."""
    records = measure_cell(scripted(by=lambda _: status), tokenizer, task(*PROMPTS))
    assert [each.status for each in records] == [status] * 6


def test_should_stop_ends_the_cell_between_requests(
    scripted: Any, tokenizer: Any, task: Any
) -> None:
    """Also within a conversation."""
    talk = Prompt(id="talk", turns=("a", "b", "c"))
    client = scripted(by=str)
    stopping = replace(task(talk), should_stop=lambda: len(client.asked) == 2)
    assert len(measure_cell(client, tokenizer, stopping)) == 2


def test_an_exception_of_a_thread_is_raised(scripted: Any, tokenizer: Any, task: Any) -> None:
    """A bug does not look like a cell with few requests."""

    def bug(_: str) -> str:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        measure_cell(scripted(by=bug), tokenizer, task(*PROMPTS, concurrency=2))


def test_an_interrupt_is_not_held_up_by_a_request(
    scripted: Any, tokenizer: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main thread leaves at once; the thread in flight sends nothing more."""
    over = threading.Event()
    started = threading.Event()

    def slow(_: str) -> str:
        started.set()
        over.wait(10)
        return "late"

    join = threading.Thread.join

    def interrupted_join(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name.startswith("client-") and not over.is_set():
            assert started.wait(10)
            raise KeyboardInterrupt
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupted_join)
    client = scripted(by=slow)
    with pytest.raises(KeyboardInterrupt):
        measure_cell(client, tokenizer, task(*PROMPTS))
    over.set()
    for thread in threading.enumerate():
        if thread.name.startswith("client-"):
            thread.join(10)
    assert len(client.asked) == 1


def test_the_clients_own_delay_is_recorded(scripted: Any, tokenizer: Any, task: Any) -> None:
    """Time between an answer and the next request is measured and never negative."""
    records = measure_cell(scripted(by=str), tokenizer, task(*PROMPTS))
    assert all(each.wait_s >= 0 for each in records)
    assert any(each.wait_s > 0 for each in records)


def test_arrivals_are_seeded_and_scale_with_their_rate():
    """Twice the rate halves every time; another repeat has other times.

    Of 2000 gaps at 4 a second the mean is 0.25 s; its standard error 0.25 ÷ √2000 = 0.0056 s, so
    that one seed in 10⁴ would be farther off than 0.022 s. The seed is fixed.
    """
    times = arrivals(2000, 4.0, seed=1, repeat=1)
    assert times[-1] / 2000 == pytest.approx(0.25, abs=0.022)
    assert arrivals(2000, 8.0, seed=1, repeat=1) == pytest.approx(tuple(at / 2 for at in times))
    assert arrivals(2000, 4.0, seed=1, repeat=2) != times
    assert list(times) == sorted(times)


def test_in_an_open_loop_nothing_waits_for_an_answer(scripted, tokenizer, task):
    """Four conversations are answered only when all four are in flight."""
    barrier = threading.Barrier(4)

    def together(text):
        barrier.wait(timeout=10)
        return "fine"

    records = measure_cell(
        scripted(by=together), tokenizer, task(*PROMPTS[:4], arrivals_per_s=1000.0)
    )
    assert [record.status for record in records] == [Status.OK] * 4


def test_no_request_of_an_open_loop_is_sent_before_it_is_due(scripted, tokenizer, task):
    """Sent in the order of arrival, each at its drawn time or later, which is its wait."""
    began_s, sent_s = time.monotonic(), []

    def noted(text):
        sent_s.append(time.monotonic() - began_s)
        return "fine"

    asked = task(*PROMPTS[:4], arrivals_per_s=100.0)
    records = measure_cell(scripted(by=noted), tokenizer, asked)
    due_s = arrivals(4, 100.0, asked.seed, 1)
    assert all(sent >= due - 1e-3 for sent, due in zip(sorted(sent_s), due_s, strict=True))
    expected = [prompt.id for prompt in ordered(asked.prompts, asked.seed, 1)]
    assert [record.prompt_id for record in records] == expected
    assert all(record.wait_s >= 0 for record in records)


def test_recorded_arrivals_keep_their_rhythm() -> None:
    """Three gaps of 1, 0 and 3 s at a mean of 0.5 a second: 6 s, cut as the record was."""
    times = {"a": 10.0, "b": 11.0, "c": 11.0, "d": 14.0}
    prompts = [
        Prompt(id=name, turns=("?",), tags={"timestamp_s": str(at)}) for name, at in times.items()
    ]
    in_turn, due = recorded_arrivals(prompts[::-1], 0.5)
    assert [prompt.id for prompt in in_turn] == ["a", "b", "c", "d"]
    assert due == pytest.approx((0.0, 1.5, 1.5, 6.0))
    # all at one moment: nothing can be stretched
    assert recorded_arrivals(prompts[1:3], 0.5)[1] == (0.0, 0.0)


def test_a_cell_follows_recorded_arrivals(scripted: Any, tokenizer: Any, task: Any) -> None:
    """Asked in the order of the record, not in that of the seed."""
    prompts = [
        Prompt(id=str(n), turns=(f"{n}?",), tags={"timestamp_s": str(9 - n)}) for n in range(5)
    ]
    asked = task(*prompts, arrivals_per_s=200.0)
    asked = replace(
        asked,
        workload=asked.workload.model_copy(
            update={"arrivals": "recorded", "arrivals_per_s": (200.0,)}
        ),
    )
    records = measure_cell(scripted(by=lambda _: "yes"), tokenizer, asked)
    assert [record.prompt_id for record in records] == ["4", "3", "2", "1", "0"]


def test_draws_ask_each_prompt_again_and_again(scripted, tokenizer, task):
    """20 times two prompts, each request with a seed of its own, another launch with others."""
    drawn = {"draws": 20, "temperature": 1.0}
    seeds = []
    for launch in (1, 2):
        client = scripted(by=str)
        records = measure_cell(client, tokenizer, task(*PROMPTS[:2], launch=launch, **drawn))
        assert sorted(record.prompt_id for record in records) == ["p0"] * 20 + ["p1"] * 20
        seeds += [sampling.seed for sampling in client.samplings]
    assert len(set(seeds)) == 80


def test_a_started_answer_is_sent_with_the_prompt(scripted, tokenizer, task):
    """The server goes on from it; its words are no part of what it answered."""
    prompt = Prompt(id="p", turns=("A story?",), answer_start="Once upon")
    client = scripted("a time")
    (record,) = measure_cell(client, tokenizer, task(prompt))
    assert client.asked[0].endswith("assistant\nOnce upon")
    assert record.text == "a time"
