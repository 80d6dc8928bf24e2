"""One cell: order, concurrency, and how it ends early."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from ddtree_bench.prompts import Prompt
from ddtree_bench.status import Status
from ddtree_bench.workloads.run import measure_cell, ordered

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
