"""A scriptable engine, a byte tokenizer, and the server over both, in one process."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer
from transformers import PreTrainedTokenizerFast

from ddtree.engine import EngineSpec, Sampling, Step, StepTree, TokenLogProbs
from ddtree.server.app import build_app
from ddtree.server.service import Identity, Service

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sglang-0.5.17-h200"
PATIENCE_S = 10.0
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m['role'] == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer whose ids 0 to 255 are bytes, with two special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = RustTokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", chat_template=TEMPLATE
    )


TOKENIZER = byte_tokenizer()
EOS = 257


@dataclass
class ScriptedEngine:
    """Answers with `answer` and eos, `width` drafts a step as `algorithm` would.

    A step in which `answer` holds an exception raises it. With `gated`, each step waits for one
    release of `gate`; `began` is released once a request starts.
    """

    algorithm: str = "AR"
    answer: Sequence[int | Exception] = ()
    gated: bool = False
    context_length: int = 400
    vocab_size: int = 258
    eos_token_ids: frozenset[int] = frozenset({EOS})
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    began: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    closed: list[tuple[int, ...]] = field(default_factory=list)
    asked: list[Sampling] = field(default_factory=list)

    @property
    def verify_width(self) -> int:
        """As the algorithm's name says: 1, a block of 4, a budget of 5."""
        return {"AR": 1, "DFLASH": 4, "DDTREE": 6}[self.algorithm]

    @property
    def spec(self) -> EngineSpec:
        """Consistent with `algorithm`."""
        drafter = None if self.algorithm == "AR" else Path("drafter")
        budget = 5 if self.algorithm == "DDTREE" else None
        return EngineSpec(Path("target"), drafter, self.algorithm, None, budget, None)

    def generate(
        self, input_ids: Sequence[int], sampling: Sampling, top_logprobs: int = 0
    ) -> Iterator[Step]:
        """Steps of the scripted answer."""
        self.asked.append(sampling)
        self.began.release()
        try:
            for step in self._steps(sampling, top_logprobs):
                if self.gated:
                    assert self.gate.acquire(timeout=PATIENCE_S)
                yield step
        finally:
            self.closed.append(tuple(input_ids))

    def _steps(self, sampling: Sampling, tops: int) -> Iterator[Step]:
        """The prefill's token, then three tokens a verify step (two accepted, one bonus)."""
        left = [*self.answer, EOS][: sampling.max_new_tokens]
        size = 1
        while left:
            tokens, left = left[:size], left[size:]
            for token in tokens:
                if isinstance(token, Exception):
                    raise token
            yield self._step(tokens, first=size == 1, last=not left, tops=tops)
            size = 1 if self.algorithm == "AR" else 3

    def _step(self, tokens: list[Any], first: bool, last: bool, tops: int) -> Step:
        spec = self.algorithm != "AR" and not first
        stop = EOS if last and tokens[-1] == EOS else None
        reason = ("length" if stop is None else "stop") if last else None
        log_prob = TokenLogProbs(-0.5, tuple((rank, -1.0 - rank) for rank in range(tops)))
        return Step(
            tokens=tuple(tokens),
            accepted_drafts=2 if spec else None,
            tree=StepTree((2, 2, 1), (0, 1), (1, 4), 3) if spec else None,
            finish_reason=reason,
            matched_stop=stop,
            log_probs=(log_prob,) * len(tokens) if tops else None,
            drafting_s=0.125 if spec else 0.0,
        )


@dataclass
class Exchange:
    """One request over the bare ASGI interface: `gone` is the client leaving."""

    app: Starlette
    path: str
    body: dict[str, Any]
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[dict[str, Any]] = field(default_factory=list)
    got_event: asyncio.Event = field(default_factory=asyncio.Event)
    asked: bool = False

    async def run(self) -> "Exchange":
        """Exchange request and response; return self."""
        scope = {
            "type": "http",
            "method": "POST",
            "path": self.path,
            "headers": [],
            "query_string": b"",
        }
        await self.app(scope, self._receive, self._send)
        return self

    async def _receive(self) -> dict[str, Any]:
        if not self.asked:
            self.asked = True
            return {"type": "http.request", "body": json.dumps(self.body).encode()}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.got_event.set()

    @property
    def text(self) -> str:
        """The body so far."""
        return b"".join(message.get("body", b"") for message in self.sent).decode()


def text_ids(text: str) -> list[int]:
    """Token ids of `text`, one a byte."""
    return TOKENIZER.encode(text, add_special_tokens=False)


def sse_bodies(text: str) -> list[Any]:
    """JSON of each event of a stream, "[DONE]" as it is."""
    payloads = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [item if item == "[DONE]" else json.loads(item) for item in payloads]


@pytest.fixture
def ids() -> Callable[[str], list[int]]:
    return text_ids


@pytest.fixture
def bodies() -> Callable[[str], list[Any]]:
    return sse_bodies


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return TOKENIZER


@pytest.fixture
def recorded() -> Callable[[str], Any]:
    """Body of a real server, by file name; a list for a stream."""

    def read(name: str) -> Any:
        text = (FIXTURES / name).read_text(encoding="utf-8")
        return sse_bodies(text) if name.endswith(".sse") else json.loads(text)

    return read


@pytest.fixture
def make_engine() -> type[ScriptedEngine]:
    return ScriptedEngine


@pytest.fixture
def serve() -> Iterator[Callable[[ScriptedEngine], Service]]:
    """Starter of a service over an engine; closed after the test."""
    services: list[Service] = []

    def start(engine: ScriptedEngine) -> Service:
        identity = Identity("target", {"version": "1"}, {"model_type": "llama"})
        service = Service(engine, TOKENIZER, byte_tokenizer(), identity, seed=7)
        services.append(service)
        service.worker.start()
        return service

    yield start
    for service in services:
        service.engine.gate.release(1000)
        assert service.worker.close(PATIENCE_S)


@pytest.fixture
def client_of(
    serve: Callable[[ScriptedEngine], Service],
) -> Iterator[Callable[[ScriptedEngine], TestClient]]:
    """Starter of an HTTP client of a server over an engine."""
    clients: list[TestClient] = []

    def start(engine: ScriptedEngine) -> TestClient:
        client = TestClient(build_app(serve(engine)), raise_server_exceptions=False)
        clients.append(client)
        return client.__enter__()

    yield start
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def exchange() -> type[Exchange]:
    return Exchange


@pytest.fixture
def wait_for() -> Callable[[threading.Semaphore], Awaitable[None]]:
    """Waiter for a semaphore that another thread releases."""

    async def wait(semaphore: threading.Semaphore) -> None:
        assert await asyncio.to_thread(semaphore.acquire, timeout=PATIENCE_S)

    return wait


@pytest.fixture
def recorded_metrics() -> set[str]:
    """TYPE lines of a real server's metrics page."""
    page = (FIXTURES / "dflash" / "metrics.txt").read_text(encoding="utf-8")
    return {line for line in page.splitlines() if line.startswith("# TYPE ")}
