"""What the client sends, and how it tells each way in which a server fails."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3

from ddtree_bench.client import client as client_module
from ddtree_bench.client.client import Client
from ddtree_bench.client.sse import SseEvent, SseParser
from ddtree_bench.errors import RequestError
from ddtree_bench.records import Sampling
from ddtree_bench.status import Status

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sglang-0.5.17-h200"
SAMPLING = Sampling(max_new_tokens=32)
HELLO = [{"role": "user", "content": "hello"}]
KEY = "sk-very-secret"


def body(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def event(tokens: int, finish: str | None = None) -> bytes:
    """An event of the native route after so many tokens."""
    meta = {
        "prompt_tokens": 5,
        "completion_tokens": tokens,
        "finish_reason": None if finish is None else {"type": finish},
    }
    data = {"text": "x" * tokens, "output_ids": [7] * tokens, "meta_info": meta}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


@pytest.fixture
def client(replay: Any) -> Iterator[Client]:
    with Client(replay.url, model="target", timeout_s=10, api_key=KEY) as each:
        yield each


def test_generate_sends_every_sampling_value(replay: Any, client: Client) -> None:
    """The model's defaults never decide; a seed is sent where there is one."""
    replay.answer(body("ar/generate_stream.sse"))
    replay.answer(body("ar/generate.json"))
    client.generate((1, 2), SAMPLING).require()
    client.generate((1, 2), SAMPLING.model_copy(update={"seed": 9}), stream=False).require()
    first, second = replay.seen
    assert (first.method, first.path) == ("POST", "/generate")
    params = {
        "max_new_tokens": 32,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "ignore_eos": False,
    }
    assert first.body == {"input_ids": [1, 2], "stream": True, "sampling_params": params}
    assert second.body["sampling_params"] == {**params, "sampling_seed": 9}


def test_chat_asks_for_usage_of_every_chunk(replay: Any, client: Client) -> None:
    """The OpenAI route names the model and asks for cumulative usage."""
    replay.answer(body("dflash/chat_stream.sse"))
    answer = client.chat(HELLO, SAMPLING).require()
    assert answer.completion_tokens == 64
    sent = replay.seen[0].body
    assert replay.seen[0].path == "/v1/chat/completions"
    assert sent["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert (sent["model"], sent["messages"]) == ("target", HELLO)
    assert (sent["max_tokens"], sent["temperature"], sent["top_k"]) == (32, 0.0, -1)


def test_a_stream_and_a_body_give_the_same_answer(replay: Any, client: Client) -> None:
    """Recorded stream and body of one prompt differ in nothing but what was streamed."""
    replay.answer(body("ar/generate_stream.sse"))
    replay.answer(body("ar/generate_ids.json"))
    streamed = client.generate((1,), SAMPLING).require()
    whole = client.generate((1,), SAMPLING, stream=False).require()
    assert streamed.output_ids == whole.output_ids
    assert streamed.text == whole.text
    assert streamed.events[-1].tokens == 30
    assert whole.events == ()


def test_events_are_timed_when_they_arrive(
    replay: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first event is read before the second is sent: no buffer stands in between.

    The server waits for the client to have parsed the first; a client that waits for more bytes
    would let that wait run out.
    """
    parsed = threading.Event()
    in_time: list[bool] = []
    feed = SseParser.feed

    def telling_feed(parser: SseParser, chunk: bytes) -> list[SseEvent]:
        events = feed(parser, chunk)
        if events:
            parsed.set()
        return events

    monkeypatch.setattr(SseParser, "feed", telling_feed)
    for chunked in (True, False):
        parsed.clear()
        replay.answer(
            event(1),
            lambda: in_time.append(parsed.wait(5)),
            event(2, "stop"),
            b"data: [DONE]\n\n",
            chunked=chunked,
        )
        exchange = client.generate((1,), SAMPLING)
        first, second = exchange.require().events
        assert 0 < first.at_s < second.at_s <= exchange.end_s
    assert in_time == [True, True]


def test_connections_are_kept(replay: Any, client: Client) -> None:
    """A second request pays for no handshake."""
    for _ in range(3):
        replay.answer(event(1, "stop"), b"data: [DONE]\n\n")
        client.generate((1,), SAMPLING).require()
    assert len({seen.peer for seen in replay.seen}) == 1


def test_threads_share_a_client(replay: Any, client: Client) -> None:
    """Eight requests are in flight at once, each on a connection of its own."""
    barrier = threading.Barrier(8, timeout=10)
    for _ in range(8):
        replay.answer(event(1), lambda: barrier.wait(), event(3, "stop"), b"data: [DONE]\n\n")
    with ThreadPoolExecutor(8) as pool:
        exchanges = list(pool.map(lambda n: client.generate((n,), SAMPLING), range(8)))
    assert [each.require().completion_tokens for each in exchanges] == [3] * 8
    assert len({seen.peer for seen in replay.seen}) == 8
    assert sorted(seen.body["input_ids"][0] for seen in replay.seen) == list(range(8))


def test_silence_is_hung_and_keeps_what_came(replay: Any) -> None:
    """A server that stops in mid-stream is HUNG after the timeout, its tokens are kept."""
    over = threading.Event()
    for timeout_s in (0.2, 5.0):  # a loaded machine may not bring the tokens within the first
        replay.answer(event(1), event(3), over.wait)
        with Client(replay.url, model="m", timeout_s=timeout_s) as client:
            exchange = client.generate((1,), SAMPLING)
        if len(exchange.answer.events) == 2:
            break
    over.set()
    assert exchange.status is Status.HUNG
    assert f"{timeout_s:g} s" in exchange.detail
    assert exchange.end_s >= timeout_s
    assert [each.tokens for each in exchange.answer.events] == [1, 3]


def test_silence_before_the_answer_is_hung() -> None:
    """A server that accepts and never answers is HUNG as well."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with Client(url, model="m", timeout_s=0.3) as client:
            assert client.generate((1,), SAMPLING).status is Status.HUNG


def test_a_refused_connection_is_unreachable() -> None:
    """Nobody listens: the exchange says so instead of raising."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", model="m", timeout_s=5) as client:
        exchange = client.generate((1,), SAMPLING)
        assert exchange.status is Status.UNREACHABLE
        assert "refused" in exchange.detail
        with pytest.raises(RequestError, match="refused"):
            client.server_info()


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("torn", [b"", b'data: {"text": "x'])
def test_a_closed_connection_is_unreachable(
    replay: Any, client: Client, chunked: bool, torn: bytes
) -> None:
    """A stream that ends without its last event is a lost server, however it was framed."""
    parts = [event(1), event(2), *([torn] if torn else [])]
    replay.answer(*parts, chunked=chunked, complete=False)
    exchange = client.generate((1,), SAMPLING)
    assert exchange.status is Status.UNREACHABLE
    assert exchange.answer.completion_tokens == 2


@pytest.mark.parametrize(
    "name", ["dflash/generate_logprob.json", "dflash/chat_logprobs.json", "ar/too_long.json"]
)
def test_an_http_error_tells_the_servers_words(replay: Any, client: Client, name: str) -> None:
    """Status code and message of either shape stand in the detail."""
    replay.answer(body(name), status=400)
    exchange = client.generate((1,), SAMPLING)
    assert exchange.status is Status.HTTP_ERROR
    assert "HTTP 400 from /generate: " in exchange.detail
    assert exchange.detail.endswith(".")
    with pytest.raises(RequestError, match="HTTP 400"):
        exchange.require()


def test_an_error_inside_the_stream_is_a_stream_error(replay: Any, client: Client) -> None:
    """What the server says explains the end better than the missing end does."""
    replay.answer(event(1), b'data: {"error": {"message": "no memory"}}\n\n')
    exchange = client.generate((1,), SAMPLING)
    assert exchange.status is Status.STREAM_ERROR
    assert "no memory" in exchange.detail
    assert exchange.answer.completion_tokens == 1


def test_garbage_is_malformed(replay: Any, client: Client) -> None:
    """An answer of another shape is told by its field."""
    replay.answer(b'data: {"text": 5}\n\n', b"data: [DONE]\n\n")
    exchange = client.generate((1,), SAMPLING)
    assert exchange.status is Status.MALFORMED
    assert "text" in exchange.detail


def test_no_events_at_all_is_no_usage(replay: Any, client: Client) -> None:
    """An empty stream is a failure."""
    replay.answer(b"data: [DONE]\n\n")
    assert client.generate((1,), SAMPLING).status is Status.NO_USAGE


def test_redirects_are_refused(replay: Any, client: Client) -> None:
    """Another server is not measured in this one's stead."""
    replay.answer(status=307, headers={"Location": replay.url + "/elsewhere"})
    exchange = client.generate((1,), SAMPLING)
    assert exchange.status is Status.HTTP_ERROR
    assert "307" in exchange.detail
    assert len(replay.seen) == 1


def test_proxies_of_the_environment_are_ignored(
    replay: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would be measured, too."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    replay.answer(body("ar/models.json"))
    assert client.models() == ("target",)


def test_the_api_key_is_sent_and_never_shown(replay: Any, client: Client) -> None:
    """It goes into the header; neither repr nor errors repeat it, even if the server does."""
    replay.answer(f'{{"error": {{"message": "wrong key {KEY}"}}}}'.encode(), status=401)
    replay.answer(event(1), f'data: {{"error": {{"message": "{KEY}"}}}}\n\n'.encode())
    replay.answer(f"no {KEY}".encode(), status=401)
    refused = client.generate((1,), SAMPLING)
    broken = client.generate((1,), SAMPLING)
    with pytest.raises(RequestError) as raised:
        client.server_info()
    assert replay.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    for text in (repr(client), refused.detail, broken.detail, str(raised.value)):
        assert KEY not in text
    assert "[api key]" in refused.detail


def test_meta_info_is_asked_for_until_refused(replay: Any, client: Client) -> None:
    """A server that refuses `return_meta_info` is asked without it, from then on only so."""
    refusal = b'{"object": "error", "message": "unknown key: return_meta_info", "code": 400}'
    replay.answer(refusal, status=400)
    replay.answer(body("ar/chat.json"))
    replay.answer(body("ar/chat.json"))
    for _ in range(2):
        assert client.chat(HELLO, SAMPLING, stream=False).require().completion_tokens == 64
    asked = ["return_meta_info" in seen.body for seen in replay.seen]
    assert asked == [True, False, False]


def test_another_refusal_is_not_asked_again(replay: Any, client: Client) -> None:
    """A request is sent once: its error is the measurement."""
    replay.answer(body("ar/too_long.json"), status=400)
    assert client.chat(HELLO, SAMPLING, stream=False).status is Status.HTTP_ERROR
    assert len(replay.seen) == 1


def test_flushing_waits_until_the_server_is_idle(
    replay: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP 400 means busy and is asked again; patience has an end."""
    monkeypatch.setattr(client_module, "FLUSH_PAUSE_S", 0.0)
    replay.answer(b"busy", status=400)
    replay.answer(body("ar/flush_cache.txt"))
    client.flush_cache()
    assert [seen.path for seen in replay.seen] == ["/flush_cache"] * 2
    replay.answer(b"busy", status=400)
    with pytest.raises(RequestError, match="busy"):
        client.flush_cache(patience_s=0.0)


def test_control_routes(replay: Any, client: Client) -> None:
    """Recorded bodies of the other routes are read; what is no JSON object is malformed."""
    replay.answer(body("dflash/server_info.json"))
    replay.answer(body("ar/health_generate.txt") or b"")
    replay.answer(b"[]")
    replay.answer(b"<html>")
    assert client.server_info()["speculative_algorithm"] == "DFLASH"
    client.health_generate(timeout_s=5)
    for _ in range(2):
        with pytest.raises(RequestError) as raised:
            client.server_info()
        assert raised.value.status is Status.MALFORMED


@pytest.mark.parametrize("module", [requests.exceptions, urllib3.exceptions])
def test_every_foreign_exception_has_a_status(module: Any) -> None:
    """No exception that requests or urllib3 may raise passes the client unmapped."""
    errors = {
        name: kind
        for name, kind in vars(module).items()
        if isinstance(kind, type)
        and issubclass(kind, Exception)
        and not issubclass(kind, Warning)
        and kind.__module__ == module.__name__
    }
    errors.pop("ProxySchemeUnknown", None)  # proxies are never used
    errors.pop("ProxySchemeUnsupported", None)
    assert len(errors) > 10
    unmapped = [n for n, kind in errors.items() if not issubclass(kind, client_module._FOREIGN)]
    assert unmapped == []


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def test_a_schema_is_sent_as_each_route_wants_it(replay: Any, client: Client) -> None:
    """SGLang's own route takes JSON text, the OpenAI route a response format."""
    replay.answer(body("ar/generate.json"))
    replay.answer(body("ar/chat.json"))
    constrained = SAMPLING.model_copy(update={"json_schema": SCHEMA})
    client.generate((1, 2), constrained, stream=False).require()
    client.chat(HELLO, constrained, stream=False).require()
    native, chat = (request.body for request in replay.seen)
    assert json.loads(native["sampling_params"]["json_schema"]) == SCHEMA
    assert chat["response_format"]["json_schema"]["schema"] == SCHEMA


def test_template_options_are_sent_where_there_are_any(replay: Any, client: Client) -> None:
    """A server that knows none is not asked for them."""
    for _ in range(2):
        replay.answer(body("ar/chat.json"))
    client.chat(HELLO, SAMPLING, stream=False, template={"enable_thinking": False}).require()
    client.chat(HELLO, SAMPLING, stream=False, template={}).require()
    first, second = (request.body for request in replay.seen)
    assert first["chat_template_kwargs"] == {"enable_thinking": False}
    assert "chat_template_kwargs" not in second
