"""HTTP to one server: what was sent, what came back, and when each event arrived."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookiejar import DefaultCookiePolicy
from types import TracebackType
from typing import Any, Final, Self

import requests
import urllib3
from requests.adapters import HTTPAdapter

from ddtree_bench.client.answers import (
    DONE,
    Add,
    Answer,
    Inbox,
    TopTokens,
    add_chat,
    add_generated,
    error_message,
    incomplete,
    read,
    top_tokens,
)
from ddtree_bench.client.sse import SseParser
from ddtree_bench.errors import RequestError
from ddtree_bench.records import Sampling
from ddtree_bench.status import Status

CONNECT_TIMEOUT_S: Final = 10.0
CONNECTIONS: Final = 512
"""Kept-alive connections at most; a warm one makes no request pay for a handshake."""
READ_BYTES: Final = 65536
FLUSH_PAUSE_S: Final = 0.2
REASON_CHARS: Final = 500

# Exceptions of requests and urllib3, the more special first. The body is read from urllib3
# directly, because requests reports a silent server in mid-body as a lost connection.
_FAULTS: Final[tuple[tuple[type[Exception], Status], ...]] = (
    (requests.exceptions.ConnectTimeout, Status.UNREACHABLE),
    (requests.exceptions.ReadTimeout, Status.HUNG),
    (urllib3.exceptions.ReadTimeoutError, Status.HUNG),
    (requests.exceptions.RequestException, Status.UNREACHABLE),
    (urllib3.exceptions.HTTPError, Status.UNREACHABLE),
)
_FOREIGN: Final = tuple(kind for kind, _ in _FAULTS)

ChatMessage = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and all that came of it; `answer` holds what arrived, also after a failure.

    `end_s` is the time from sending to the last byte or the failure; times of events count from
    the same moment.
    """

    sent_unix_s: float
    sent_monotonic_s: float
    end_s: float
    answer: Answer
    status: Status = Status.OK
    detail: str = ""

    def require(self) -> Answer:
        """The answer; raises RequestError if the request failed."""
        if not self.status.ok:
            raise RequestError(self.status, self.detail)
        return self.answer


@dataclass(slots=True)
class _Arrivals:
    """What has arrived so far of one body."""

    sent_s: float
    inbox: Inbox = field(default_factory=Inbox)
    done: bool = False

    def now_s(self) -> float:
        return time.monotonic() - self.sent_s

    def add(self, at_s: float | None, data: str) -> None:
        if data == DONE:
            self.done = True
        else:
            self.inbox.put(at_s, data)


class Client:
    """Requests to one server; may be used from several threads.

    Nothing is sent twice, redirects are refused, and proxies of the environment are ignored:
    each would be measured in the server's stead.
    """

    def __init__(
        self, base_url: str, *, model: str, timeout_s: float, api_key: str | None = None
    ) -> None:
        """Prepare, send nothing.

        Args:
            base_url: such as `http://127.0.0.1:30000`.
            model: name under which the server serves it (chat route).
            timeout_s: longest silence of the server within a request.
            api_key: sent as bearer token, shown nowhere.
        """
        self.base_url = base_url.rstrip("/")
        self.model = model
        self.timeout_s = timeout_s
        self._api_key = api_key
        self._meta_info = True
        self._session = _session(api_key)

    def __repr__(self) -> str:
        return f"Client({self.base_url!r}, model={self.model!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the kept-alive connections."""
        self._session.close()

    def generate(
        self, input_ids: Sequence[int], sampling: Sampling, *, stream: bool = True
    ) -> Exchange:
        """Continue a rendered prompt through SGLang's native route."""
        body = {
            "input_ids": list(input_ids),
            "sampling_params": _native_sampling(sampling),
            "stream": stream,
        }
        return self._exchange("/generate", body, add_generated, stream)

    def chat(
        self,
        messages: Sequence[ChatMessage],
        sampling: Sampling,
        *,
        stream: bool = True,
        template: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Exchange:
        """Answer a conversation through the OpenAI route, the server renders the prompt.

        `template`: options of the model's chat template, such as `enable_thinking`.
        `tools`: what the model may call, each as the OpenAI route describes a function.

        Without a stream, SGLang's `return_meta_info` is asked for; a server that refuses it is
        asked once more without, and never with it again.
        """
        body = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "stream": stream,
            **_chat_sampling(sampling),
        }
        if template:
            body["chat_template_kwargs"] = dict(template)
        if tools:
            body["tools"] = list(tools)
        path = "/v1/chat/completions"
        if stream:
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        elif self._meta_info:
            exchange = self._exchange(path, {**body, "return_meta_info": True}, add_chat, stream)
            if not _refuses(exchange, "return_meta_info"):
                return exchange
            self._meta_info = False
        return self._exchange(path, body, add_chat, stream)

    def top_logprobs(
        self, input_ids: Sequence[int], sampling: Sampling, count: int
    ) -> tuple[TopTokens, ...]:
        """The `count` most likely tokens at each place of the answer; raises RequestError."""
        body = {
            "input_ids": list(input_ids),
            "sampling_params": _native_sampling(sampling),
            "stream": False,
            "return_logprob": True,
            "logprob_start_len": -1,  # none of the prompt
            "top_logprobs_num": count,
        }
        return top_tokens(self._control("POST", "/generate", payload=json.dumps(body).encode()))

    def server_info(self) -> dict[str, Any]:
        """The body of `/server_info`; raises RequestError."""
        return self._json("/server_info")

    def models(self) -> tuple[str, ...]:
        """Names of the models that the server serves; raises RequestError."""
        entries = self._json("/v1/models").get("data")
        if not isinstance(entries, list):
            raise RequestError(Status.MALFORMED, "data: a list expected", where="/v1/models")
        return tuple(str(entry["id"]) for entry in entries if isinstance(entry, dict))

    def health_generate(self, timeout_s: float | None = None) -> None:
        """Return once the server has produced a token; raises RequestError if it does not."""
        self._control("GET", "/health_generate", timeout_s)

    def flush_cache(self, patience_s: float = 5.0) -> None:
        """Empty the server's prefix cache.

        SGLang refuses with HTTP 400 while it still works on something, and a request may linger
        for a moment after its last byte: a refusal is asked again until `patience_s` is over.
        Raises RequestError.
        """
        deadline_s = time.monotonic() + patience_s
        while True:
            try:
                self._control("POST", "/flush_cache")
                return
            except RequestError as error:
                if error.status is not Status.HTTP_ERROR or time.monotonic() >= deadline_s:
                    raise
            time.sleep(FLUSH_PAUSE_S)

    def _json(self, path: str) -> dict[str, Any]:
        text = self._control("GET", path)
        try:
            data = json.loads(text)
        except ValueError as error:
            raise RequestError(Status.MALFORMED, f"not JSON: {error}", where=path) from error
        if not isinstance(data, dict):
            raise RequestError(Status.MALFORMED, "a JSON object expected", where=path)
        return data

    def _control(
        self, method: str, path: str, timeout_s: float | None = None, payload: bytes | None = None
    ) -> str:
        silence_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            with self._open(method, path, payload, silence_s) as response:
                return _whole(response)
        except _FOREIGN as error:
            raise self._fault(error, path, silence_s) from None

    def _exchange(self, path: str, body: Mapping[str, Any], add: Add, stream: bool) -> Exchange:
        payload = json.dumps(body).encode()
        sent_unix_s = time.time()
        arrivals = _Arrivals(sent_s=time.monotonic())
        fault = self._receive(path, payload, arrivals, stream)
        end_s = arrivals.now_s()
        # Parsing waits until the last byte is here: done in between, it would delay later events.
        answer, wrong = read(arrivals.inbox.messages, add, arrivals.inbox.events)
        # What the server says in its answer explains a broken end better than the broken end.
        told = wrong is not None and wrong.status is Status.STREAM_ERROR
        error = wrong if fault is None or told else fault
        if error is None:
            error = incomplete(answer)
        return Exchange(
            sent_unix_s=sent_unix_s,
            sent_monotonic_s=arrivals.sent_s,
            end_s=end_s,
            answer=answer,
            status=Status.OK if error is None else error.status,
            detail="" if error is None else self._without_key(error.what),
        )

    def _receive(
        self, path: str, payload: bytes, arrivals: _Arrivals, stream: bool
    ) -> RequestError | None:
        """Fill `arrivals`; returns what went wrong on the way."""
        try:
            with self._open("POST", path, payload, self.timeout_s) as response:
                if stream:
                    return _collect_events(response, arrivals)
                arrivals.add(None, _whole(response))
                return None
        except RequestError as error:
            return error
        except _FOREIGN as error:
            return self._fault(error, path, self.timeout_s)

    def _open(
        self, method: str, path: str, payload: bytes | None, silence_s: float
    ) -> requests.Response:
        response = self._session.request(
            method,
            self.base_url + path,
            data=payload,
            headers={} if payload is None else {"Content-Type": "application/json"},
            timeout=(min(CONNECT_TIMEOUT_S, silence_s), silence_s),
            allow_redirects=False,
            stream=True,
        )
        if response.status_code != HTTPStatus.OK:
            with response:
                said = error_message(_whole(response))[:REASON_CHARS]
            raise RequestError(
                Status.HTTP_ERROR,
                self._without_key(f"HTTP {response.status_code} from {path}: {said}"),
            )
        return response

    def _fault(self, error: Exception, path: str, silence_s: float) -> RequestError:
        status = next(status for kind, status in _FAULTS if isinstance(error, kind))
        if status is Status.HUNG:
            return RequestError(status, f"{path}: nothing for {silence_s:g} s")
        return RequestError(status, self._without_key(f"{path}: {_root_cause(error)}"))

    def _without_key(self, text: str) -> str:
        """The text with the API key struck out, should a server repeat it."""
        return text if not self._api_key else text.replace(self._api_key, "[api key]")


def _session(api_key: str | None) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    adapter = HTTPAdapter(pool_connections=1, pool_maxsize=CONNECTIONS)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    # A compressed stream would be held back by the decompressor.
    session.headers["Accept-Encoding"] = "identity"
    if api_key:
        session.headers["Authorization"] = f"Bearer {api_key}"
    return session


def _chunks(response: requests.Response) -> Iterator[bytes]:
    """The body as it arrives: each piece is returned at once, whatever its size."""
    while chunk := response.raw.read1(READ_BYTES):
        yield chunk


def _whole(response: requests.Response) -> str:
    return b"".join(_chunks(response)).decode(errors="replace")


def _collect_events(response: requests.Response, arrivals: _Arrivals) -> RequestError | None:
    parser = SseParser()
    events = 0
    for chunk in _chunks(response):
        at_s = arrivals.now_s()
        for event in parser.feed(chunk):
            events += 1
            arrivals.add(at_s, event.data)
    if arrivals.done:
        return None
    torn = parser.close()
    if events == 0 and torn:
        return RequestError(Status.MALFORMED, f"no event stream: {torn[:80]!r}")
    where = f"in the middle of {torn[:80]!r}" if torn else f"without {DONE}"
    return RequestError(Status.UNREACHABLE, f"the stream ends {where}")


def _refuses(exchange: Exchange, key: str) -> bool:
    return exchange.status is Status.HTTP_ERROR and key in exchange.detail


def _native_sampling(sampling: Sampling) -> dict[str, Any]:
    seed = {} if sampling.seed is None else {"sampling_seed": sampling.seed}
    schema = sampling.json_schema
    grammar = {} if schema is None else {"json_schema": json.dumps(schema)}
    return {
        "max_new_tokens": sampling.max_new_tokens,
        **_common_sampling(sampling),
        **seed,
        **grammar,
    }


def _chat_sampling(sampling: Sampling) -> dict[str, Any]:
    seed = {} if sampling.seed is None else {"seed": sampling.seed}
    schema = sampling.json_schema
    grammar = {} if schema is None else {"response_format": _response_format(schema)}
    return {
        "max_tokens": sampling.max_new_tokens,
        **_common_sampling(sampling),
        **seed,
        **grammar,
    }


def _response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema)}}


def _common_sampling(sampling: Sampling) -> dict[str, Any]:
    """Values that are always sent: a model's `generation_config.json` must not decide them."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "ignore_eos": sampling.ignore_eos,
    }


def _root_cause(error: BaseException) -> str:
    """The innermost reason, which names no address or header."""
    cause = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
