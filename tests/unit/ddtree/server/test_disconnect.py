import asyncio

import pytest

from ddtree.server.app import build_app

CHAT = "/v1/chat/completions"
BODIES = {
    "/generate": {"text": "x"},
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", list(BODIES))
def test_client_that_leaves_while_running(
    serve, make_engine, ids, exchange, wait_for, path, stream
):
    """The engine drops a running request whose client left, after the step in progress."""
    engine = make_engine(answer=ids("abcdef"), gated=True)
    app = build_app(serve(engine))

    async def story():
        call = exchange(app, path, {**BODIES[path], "stream": stream})
        task = asyncio.create_task(call.run())
        await wait_for(engine.began)
        if stream:
            engine.gate.release()
            await call.got_event.wait()
        call.gone.set()
        # the watcher runs on this loop: let it see that the client left
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        engine.gate.release()
        await task

    asyncio.run(asyncio.wait_for(story(), 10))
    assert len(engine.closed) == 1
    assert engine.gate.acquire(blocking=False) is False, "no step beyond those released"


def test_client_that_leaves_the_queue(serve, make_engine, ids, exchange, wait_for):
    """A queued request whose client left takes no turn; the others keep theirs."""
    engine = make_engine(answer=ids("a"), gated=True)
    service = serve(engine)
    app = build_app(service)

    async def story():
        first = exchange(app, "/generate", {"input_ids": [1]})
        second = exchange(app, "/generate", {"input_ids": [2], "stream": True})
        third = exchange(app, "/generate", {"input_ids": [3]})
        tasks = [asyncio.create_task(first.run())]
        await wait_for(engine.began)
        tasks += [asyncio.create_task(second.run()), asyncio.create_task(third.run())]
        second.gone.set()
        await tasks[1]
        assert service.worker.load() == (1, 1)
        engine.gate.release(4)
        await asyncio.gather(*tasks)
        return first, third

    first, third = asyncio.run(asyncio.wait_for(story(), 10))
    assert engine.closed == [(1,), (3,)]
    assert '"text":"a"' in first.text
    assert '"text":"a"' in third.text


@pytest.mark.parametrize("body", [{"rid": "mine"}, {"abort_all": True}])
def test_abort_request(serve, make_engine, ids, exchange, wait_for, bodies, body):
    """An aborted request ends with what it has and the reason; its stream ends in order."""
    engine = make_engine(answer=ids("abcdef"), gated=True)
    app = build_app(serve(engine))

    async def story():
        asked = {"text": "x", "rid": "mine", "stream": True}
        call = exchange(app, "/generate", asked)
        task = asyncio.create_task(call.run())
        await wait_for(engine.began)
        twin = await exchange(app, "/generate", asked).run()
        assert twin.sent[0]["status"] == 400
        engine.gate.release()
        await call.got_event.wait()
        await exchange(app, "/abort_request", body).run()
        engine.gate.release()
        await task
        return call

    *_, last, done = bodies(asyncio.run(asyncio.wait_for(story(), 10)).text)
    assert done == "[DONE]"
    assert last["text"] == "a"
    assert last["meta_info"]["id"] == "mine"
    assert last["meta_info"]["finish_reason"]["type"] == "abort"


def test_flush_is_refused_while_a_request_runs(serve, make_engine, ids, exchange, wait_for):
    """Flushing under load changes nothing and says so."""
    engine = make_engine(answer=ids("a"), gated=True)
    app = build_app(serve(engine))

    async def story():
        task = asyncio.create_task(exchange(app, "/generate", {"text": "x"}).run())
        await wait_for(engine.began)
        flush = await exchange(app, "/flush_cache", {}).run()
        engine.gate.release(2)
        await task
        return flush

    assert asyncio.run(asyncio.wait_for(story(), 10)).sent[0]["status"] == 400


@pytest.mark.parametrize("stream", [False, True])
def test_reader_that_is_cancelled(serve, make_engine, ids, exchange, wait_for, stream):
    """If the server ends during a long forward pass, the client is told so, not left alone."""
    engine = make_engine(answer=ids("abc"), gated=True)
    app = build_app(serve(engine))

    async def story():
        call = exchange(app, "/generate", {"text": "x", "stream": stream})
        task = asyncio.create_task(call.run())
        await wait_for(engine.began)
        if stream:
            engine.gate.release()
            await call.got_event.wait()
        task.cancel()
        await task
        return call

    call = asyncio.run(asyncio.wait_for(story(), 10))
    assert call.sent[0]["status"] == (200 if stream else 503)
    assert '{"error":{"message":"the server is shutting down"}}' in call.text
