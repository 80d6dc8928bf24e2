"""The server's state, and how a checked request becomes a generation in the queue."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from ddtree.engine import Sampling
from ddtree.server.chat import ChatPrompts, Tokenizer
from ddtree.server.clock import now_s
from ddtree.server.errors import ApiError, BadRequest, EngineFailure, JsonObject
from ddtree.server.generation import Event, Generation, Snapshot, Times
from ddtree.server.metrics import Counters
from ddtree.server.schema import (
    GREEDY_BELOW,
    SEED_MAX,
    ChatRequest,
    GenerateRequest,
    SamplingParams,
)
from ddtree.server.text import OutputText
from ddtree.server.worker import CLOSING, EngineLike, Worker

GONE: Final = "the client went away"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request wants of the engine, whichever route it came by."""

    input_ids: tuple[int, ...]
    params: SamplingParams
    max_new_tokens: int | None
    """None = as many as the context has room for."""
    streaming: bool
    rid: str | None
    top_logprobs: int | None
    """Most probable tokens to report beside each token; None = no log-probabilities."""
    received_s: float


@dataclass(frozen=True, slots=True)
class Identity:
    """What the server says of itself; these facts stay the same while it runs."""

    model: str
    server_info: JsonObject
    model_info: JsonObject


class Service:
    """Engine, worker, tokenizers and counters behind the routes.

    `tokenizer` reads prompts, `decoder` writes text on the engine's thread: two objects, since
    a tokenizer may not be used from two threads at once.
    """

    def __init__(
        self,
        engine: EngineLike,
        tokenizer: Tokenizer,
        decoder: Tokenizer,
        identity: Identity,
        seed: int,
    ) -> None:
        self.engine = engine
        self.worker = Worker(engine)
        self.tokenizer = tokenizer
        self.identity = identity
        self.counters = Counters()
        self.started_s = now_s()
        self._decoder = decoder
        self._prompts = ChatPrompts(tokenizer)
        self._seeds = random.Random(seed)
        self._tokenizing = asyncio.Lock()

    async def ask_generate(self, body: GenerateRequest, received_s: float) -> Ask:
        """The wish of a `/generate` body."""
        return Ask(
            input_ids=await self._generate_ids(body),
            params=body.sampling_params,
            max_new_tokens=body.sampling_params.max_new_tokens,
            streaming=body.stream,
            rid=body.rid,
            top_logprobs=body.top_logprobs_num if body.return_logprob else None,
            received_s=received_s,
        )

    async def ask_chat(self, body: ChatRequest, received_s: float) -> Ask:
        """The wish of a `/v1/chat/completions` body."""
        if not body.messages:
            raise BadRequest("messages is empty; send at least one message")
        async with self._tokenizing:
            ids = await asyncio.to_thread(
                self._prompts.token_ids, body.messages, body.chat_template_kwargs
            )
        return Ask(
            input_ids=tuple(ids),
            params=body.sampling_params(),
            max_new_tokens=body.answer_tokens(),
            streaming=body.stream,
            rid=body.rid,
            top_logprobs=body.top_logprobs if body.logprobs else None,
            received_s=received_s,
        )

    async def _generate_ids(self, body: GenerateRequest) -> tuple[int, ...]:
        if (body.text is None) == (body.input_ids is None):
            raise BadRequest("send either text or input_ids")
        if body.input_ids is not None:
            return tuple(body.input_ids)
        async with self._tokenizing:
            return tuple(await asyncio.to_thread(self.tokenizer.encode, body.text or ""))

    def submit(self, ask: Ask) -> "Reading":
        """Queue `ask`; raises BadRequest if the engine cannot serve it."""
        self._check_prompt(ask)
        self._check_logprobs(ask)
        if ask.rid is not None and ask.rid in self.worker.live_ids():
            raise BadRequest(f"rid {ask.rid!r} is in use; choose another one")
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()
        generation = Generation(
            rid=ask.rid if ask.rid is not None else uuid.uuid4().hex,
            input_ids=ask.input_ids,
            sampling=self._sampling(ask),
            text=OutputText(self._decoder, ask.params.stop_strings()),
            streaming=ask.streaming,
            times=Times(received_s=ask.received_s, queued_s=now_s()),
            deliver=lambda event: _post(loop, events, event),
            top_logprobs=ask.top_logprobs,
        )
        self.worker.submit(generation)
        return Reading(self, generation, events)

    def _check_prompt(self, ask: Ask) -> None:
        prompt, context = len(ask.input_ids), self.engine.context_length
        if prompt == 0:
            raise BadRequest("the prompt is empty; send at least one token")
        if (largest := max(ask.input_ids)) >= self.engine.vocab_size:
            raise BadRequest(
                f"token id {largest} is outside the vocabulary; ids end at "
                f"{self.engine.vocab_size - 1}"
            )
        if prompt >= context:
            raise BadRequest(
                f"The input ({prompt} tokens) is longer than the model's context length "
                f"({context} tokens)."
            )
        if ask.max_new_tokens is not None and prompt + ask.max_new_tokens > context:
            raise BadRequest(
                f"The input ({prompt} tokens) and the answer ({ask.max_new_tokens} tokens) do not "
                f"fit the model's context length ({context} tokens); ask for at most "
                f"{context - prompt} new tokens."
            )

    def _check_logprobs(self, ask: Ask) -> None:
        if ask.top_logprobs is None:
            return
        if ask.top_logprobs > self.engine.vocab_size:
            raise BadRequest(
                f"{ask.top_logprobs} top log-probabilities are more than the vocabulary's "
                f"{self.engine.vocab_size}"
            )
        if (algorithm := self.engine.spec.algorithm) != "AR":
            raise BadRequest(
                f"{algorithm} speculative decoding does not support return_logprob; "
                "ask a server without a drafter"
            )

    def _sampling(self, ask: Ask) -> Sampling:
        params = ask.params
        room = self.engine.context_length - len(ask.input_ids)
        seed = params.sampling_seed
        return Sampling(
            max_new_tokens=room if ask.max_new_tokens is None else ask.max_new_tokens,
            temperature=0.0 if params.temperature < GREEDY_BELOW else params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            seed=self._seeds.randint(0, SEED_MAX) if seed is None else seed,
            ignore_eos=params.ignore_eos,
            stop_token_ids=tuple(params.stop_token_ids or ()),
        )


class Reading:
    """A generation in the queue or the engine, seen by the one who reads its events."""

    def __init__(
        self, service: Service, generation: Generation, events: asyncio.Queue[Event]
    ) -> None:
        self.generation = generation
        self._service = service
        self._events = events

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """The answer after each step; the last has `finish`. Raises ApiError."""
        while True:
            answer = await self._next()
            yield answer
            if answer.finish is not None:
                return

    async def last(self) -> Snapshot:
        """The whole answer; raises ApiError if there is none."""
        while (answer := await self._next()).finish is None:
            pass
        return answer

    async def _next(self) -> Snapshot:
        """The next snapshot; counts the request once it has ended."""
        try:
            event = await self._events.get()
        except asyncio.CancelledError:
            # Only the end of the server cancels a reader: a forward pass outlasts its patience.
            self.leave()
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, CLOSING) from None
        if isinstance(event, EngineFailure):
            self._service.counters.add(self.generation, aborted=False)
            raise event
        if event.finish is not None:
            self._service.counters.add(self.generation, event.finish["type"] == "abort")
        return event

    async def began(self, timeout_s: float) -> bool:
        """Whether its first event comes within `timeout_s`; takes that event."""
        try:
            event = await asyncio.wait_for(self._events.get(), timeout_s)
        except TimeoutError:
            return False
        return not isinstance(event, EngineFailure)

    def leave(self) -> None:
        """End the generation, since nobody waits for it any more."""
        self._service.worker.cancel(self.generation, GONE)


def _post(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[Event], event: Event) -> None:
    # A loop that has closed has no readers left.
    if not loop.is_closed():
        loop.call_soon_threadsafe(events.put_nowait, event)


def unknown_model(name: str, served: str) -> ApiError:
    """The error for a request that names a model other than the one served."""
    return ApiError(
        HTTPStatus.NOT_FOUND,
        f"the model {name!r} does not exist; this server has {served!r}",
        "NotFoundError",
    )
