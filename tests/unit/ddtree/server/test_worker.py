import queue
import threading

import pytest

from ddtree.engine import Sampling
from ddtree.server.clock import now_s
from ddtree.server.errors import EngineFailure
from ddtree.server.generation import Generation, Times
from ddtree.server.text import OutputText
from ddtree.server.worker import Worker

PATIENCE_S = 10.0


@pytest.fixture
def ask(tokenizer):
    """Maker of a generation with a queue of its events."""

    def make(rid="a", input_ids=(1,), stops=(), max_new_tokens=50):
        events = queue.Queue()
        generation = Generation(
            rid=rid,
            input_ids=input_ids,
            sampling=Sampling(max_new_tokens=max_new_tokens),
            text=OutputText(tokenizer, stops),
            streaming=False,
            times=Times(received_s=now_s(), queued_s=now_s()),
            deliver=events.put,
        )
        return generation, events

    return make


@pytest.fixture
def start():
    """Starter of a worker over an engine; closed after the test."""
    workers = []

    def run(engine):
        worker = Worker(engine)
        workers.append((worker, engine))
        worker.start()
        return worker

    yield run
    for worker, engine in workers:
        engine.gate.release(1000)
        assert worker.close(PATIENCE_S)
        assert not worker.alive


def last(events):
    while True:
        event = events.get(timeout=PATIENCE_S)
        if isinstance(event, EngineFailure) or event.finish is not None:
            return event


def test_events_are_cumulative_and_end_with_a_reason(make_engine, ids, ask, start):
    """Every step gives one event, which holds the whole answer so far."""
    worker = start(make_engine("DFLASH", ids("abcd")))
    generation, events = ask()
    worker.submit(generation)
    got = [events.get(timeout=PATIENCE_S) for _ in range(3)]
    # 1 token from the prefill, then 3 a step; the eos is an id without text
    assert [event.text for event in got] == ["a", "abcd", "abcd"]
    assert [len(event.output_ids) for event in got] == [1, 4, 5]
    assert [event.finish for event in got] == [None, None, {"type": "stop", "matched": 257}]
    assert generation.tally.histogram == [0, 0, 2]


def test_stop_string_cuts_inside_a_step(make_engine, ids, ask, start):
    """Tokens after the one that completes a stop string are dropped; the engine is closed."""
    engine = make_engine("DFLASH", ids("abcdefgh"))
    worker = start(engine)
    generation, events = ask(stops=("c",))
    worker.submit(generation)
    answer = last(events)
    assert (answer.text, answer.output_ids) == ("ab", tuple(ids("abc")))
    assert answer.finish == {"type": "stop", "matched": "c"}
    assert engine.closed == [(1,)]


def test_first_come_first_served(make_engine, ids, ask, start):
    """Requests reach the engine in the order in which they came."""
    engine = make_engine(answer=ids("a"), gated=True)
    worker = start(engine)
    asked = [ask(rid=str(n), input_ids=(n,)) for n in range(4)]
    for generation, _ in asked:
        worker.submit(generation)
    engine.gate.release(8)
    for _, events in asked:
        last(events)
    assert engine.closed == [(0,), (1,), (2,), (3,)]


def test_cancel_of_a_queued_request_never_reaches_the_engine(make_engine, ids, ask, start):
    """A queued request that is cancelled gets its last event at once and takes no turn."""
    engine = make_engine(answer=ids("a"), gated=True)
    worker = start(engine)
    first, first_events = ask(rid="first", input_ids=(1,))
    second, second_events = ask(rid="second", input_ids=(2,))
    worker.submit(first)
    assert engine.began.acquire(timeout=PATIENCE_S)
    worker.submit(second)
    assert worker.load() == (1, 1)
    worker.cancel(second, "gone")
    assert second_events.get_nowait().finish == {"type": "abort", "message": "gone"}
    assert worker.load() == (1, 0)
    engine.gate.release(2)
    assert last(first_events).finish["type"] == "stop"
    assert engine.closed == [(1,)]


def test_cancel_of_the_running_request_ends_after_its_step(make_engine, ids, ask, start):
    """A cancelled request keeps what it had; the step in progress is the last."""
    engine = make_engine(answer=ids("abcdef"), gated=True)
    worker = start(engine)
    generation, events = ask()
    worker.submit(generation)
    engine.gate.release()
    assert events.get(timeout=PATIENCE_S).text == "a"
    worker.abort(None, "all of you")
    engine.gate.release()
    answer = events.get(timeout=PATIENCE_S)
    assert (answer.text, answer.finish) == ("a", {"type": "abort", "message": "all of you"})
    assert engine.closed == [(1,)]


def test_the_worker_outlives_an_engine_error(make_engine, ids, ask, start):
    """A request on which the engine raises fails alone; the next one is served."""
    engine = make_engine(answer=[*ids("a"), RuntimeError("no memory")])
    worker = start(engine)
    generation, events = ask()
    worker.submit(generation)
    failure = last(events)
    assert isinstance(failure, EngineFailure)
    assert "RuntimeError: no memory" in failure.message
    engine.answer = ids("b")
    again, events = ask()
    worker.submit(again)
    assert last(events).text == "b"


def test_idle_once_the_answer_is_out(make_engine, ids, ask, start):
    """Whoever has the last event finds the worker free."""
    worker = start(make_engine(answer=ids("a")))
    loads = []
    done = threading.Event()
    generation, _ = ask()

    def deliver(event):
        if event.finish is not None:
            loads.append(worker.load())
            done.set()

    generation.deliver = deliver
    worker.submit(generation)
    assert done.wait(PATIENCE_S)
    assert loads == [(0, 0)]


def test_close_aborts_everything(make_engine, ids, ask, start):
    """Closing ends running, queued and later requests; a step in progress is waited for."""
    engine = make_engine(answer=ids("abc"), gated=True)
    worker = start(engine)
    asked = [ask(rid=str(n)) for n in range(3)]
    worker.submit(asked[0][0])
    assert engine.began.acquire(timeout=PATIENCE_S)
    worker.submit(asked[1][0])
    assert worker.close(timeout_s=0) is False
    worker.submit(asked[2][0])
    engine.gate.release()
    assert {last(events).finish["type"] for _, events in asked} == {"abort"}
    assert worker.close(PATIENCE_S) is True
