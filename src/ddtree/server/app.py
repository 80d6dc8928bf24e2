"""The ASGI application: every route, and every error as a body."""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ddtree.server import bodies
from ddtree.server.clock import now_s
from ddtree.server.errors import ApiError, BadRequest, JsonObject, error_body
from ddtree.server.generation import Snapshot
from ddtree.server.http import EventStream, JsonResponse, read_json, watching
from ddtree.server.metrics import prometheus_page
from ddtree.server.schema import (
    ChatRequest,
    SamplingParams,
    StreamOptions,
    check_abort,
    check_chat,
    check_generate,
)
from ddtree.server.service import Ask, Reading, Service, unknown_model

HEALTH_TIMEOUT_S: Final = 20.0


def build_app(service: Service) -> Starlette:
    """The application over `service`, whose worker the caller starts and closes."""
    routes = Routes(service)
    return Starlette(
        routes=[
            Route("/health", routes.health),
            Route("/health_generate", routes.health_generate),
            Route("/v1/models", routes.models),
            Route("/server_info", routes.server_info),
            Route("/get_server_info", routes.server_info),
            Route("/model_info", routes.model_info),
            Route("/get_model_info", routes.model_info),
            Route("/metrics", routes.metrics),
            Route("/generate", routes.generate, methods=["POST"]),
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
            Route("/flush_cache", routes.flush_cache, methods=["GET", "POST"]),
            Route("/abort_request", routes.abort_request, methods=["POST"]),
        ],
        exception_handlers={
            ApiError: _on_api_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_disconnect,
            Exception: _on_bug,
        },
    )


class Routes:
    """One method a route."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def health(self, request: Request) -> Response:
        """200 while requests are served."""
        return Response(status_code=200 if self._service.worker.alive else 503)

    async def health_generate(self, request: Request) -> Response:
        """200 if one token was generated, or the engine is busy but gets on."""
        worker = self._service.worker
        before = worker.steps_done
        reading = self._service.submit(_probe())
        async with watching(request.receive, reading.leave):
            began = await reading.began(HEALTH_TIMEOUT_S)
        if not began:
            reading.leave()
        return Response(status_code=200 if began or worker.steps_done > before else 503)

    async def models(self, request: Request) -> Response:
        """The one model."""
        model: JsonObject = {
            "id": self._service.identity.model,
            "object": "model",
            "created": int(self._service.started_s),
            "owned_by": "ddtree",
            "root": self._service.identity.model,
            "parent": None,
            "max_model_len": self._service.engine.context_length,
        }
        return JsonResponse({"object": "list", "data": [model]})

    async def server_info(self, request: Request) -> Response:
        """What runs here; `avg_spec_accept_length` is absent before any verify step."""
        accept_length = self._service.counters.mean_accept_length()
        state = {} if accept_length is None else {"avg_spec_accept_length": accept_length}
        return JsonResponse({**self._service.identity.server_info, "internal_states": [state]})

    async def model_info(self, request: Request) -> Response:
        """Facts about the target."""
        return JsonResponse(self._service.identity.model_info)

    async def metrics(self, request: Request) -> Response:
        """Prometheus page."""
        service = self._service
        running, queued = service.worker.load()
        width, model = service.engine.verify_width, service.identity.model
        return PlainTextResponse(prometheus_page(service.counters, running, queued, width, model))

    async def flush_cache(self, request: Request) -> Response:
        """Reset the mean acceptance length; 400 while requests run or wait."""
        if any(self._service.worker.load()):
            return PlainTextResponse("Busy: requests run or wait; nothing was flushed.\n", 400)
        self._service.counters.flush()
        return PlainTextResponse("Cache flushed.\n")

    async def abort_request(self, request: Request) -> Response:
        """Abort one request or all; an unknown rid is no error."""
        body = check_abort(await read_json(request))
        if body.abort_all or body.rid is not None:
            rid = None if body.abort_all else body.rid
            self._service.worker.abort(rid, "aborted by /abort_request")
        return Response()

    async def generate(self, request: Request) -> Response:
        """SGLang's native route."""
        received_s = now_s()
        body = check_generate(await read_json(request))
        reading = self._service.submit(await self._service.ask_generate(body, received_s))
        if body.stream:
            return await self._stream(request, reading, self._generate_events(reading))
        async with watching(request.receive, reading.leave):
            answer = await reading.last()
        return JsonResponse(self._generate_body(reading, answer))

    async def chat(self, request: Request) -> Response:
        """OpenAI's chat route."""
        received_s = now_s()
        body = check_chat(await read_json(request))
        model = self._service.identity.model
        if body.model is not None and body.model != model:
            raise unknown_model(body.model, model)
        if body.stream and (body.return_meta_info or body.logprobs):
            raise BadRequest("return_meta_info and logprobs come without stream only")
        reading = self._service.submit(await self._service.ask_chat(body, received_s))
        if body.stream:
            events = self._chat_events(reading, body.stream_options)
            return await self._stream(request, reading, events)
        async with watching(request.receive, reading.leave):
            answer = await reading.last()
        return JsonResponse(self._chat_body(reading, answer, body))

    async def _stream(
        self, request: Request, reading: Reading, events: AsyncIterator[bytes]
    ) -> Response:
        """`events` as a response; one that fails before its first event is an error instead."""
        async with watching(request.receive, reading.leave):
            first = await anext(events)
        return EventStream(_in_band(first, events, request.url.path), reading.leave)

    async def _generate_events(self, reading: Reading) -> AsyncIterator[bytes]:
        async for answer in reading.snapshots():
            yield bodies.sse(self._generate_body(reading, answer))

    def _generate_body(self, reading: Reading, answer: Snapshot) -> JsonObject:
        return bodies.generate_body(self._service.engine, reading.generation, answer)

    async def _chat_events(self, reading: Reading, options: StreamOptions) -> AsyncIterator[bytes]:
        chunks = bodies.ChatChunks(self._service.identity.model, reading.generation, options)
        async for answer in reading.snapshots():
            for chunk in chunks.of(answer):
                yield bodies.sse(chunk)

    def _chat_body(self, reading: Reading, answer: Snapshot, body: ChatRequest) -> JsonObject:
        generation = reading.generation
        info = bodies.meta_info(self._service.engine, generation, answer)
        tokenizer = self._service.tokenizer
        logprobs = bodies.chat_logprobs(tokenizer, generation) if body.logprobs else None
        return bodies.chat_body(
            self._service.identity.model,
            generation,
            answer,
            logprobs,
            info if body.return_meta_info else None,
        )


def _probe() -> Ask:
    """One greedy token after token 0."""
    params = SamplingParams(temperature=0.0, max_new_tokens=1)
    return Ask((0,), params, 1, False, None, None, now_s())


async def _in_band(first: bytes, events: AsyncIterator[bytes], path: str) -> AsyncIterator[bytes]:
    """`first`, then `events`; a failure becomes an event, since the status has been sent."""
    yield first
    try:
        async for event in events:
            yield event
    except ApiError as error:
        body = error_body(path, error)
        yield bodies.sse(body if "error" in body else {"error": body})
    yield bodies.DONE


async def _on_api_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return JsonResponse(error_body(request.url.path, error), error.status)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in FastAPI's shape as SGLang has it."""
    if not isinstance(error, HTTPException):
        raise error
    return JsonResponse({"detail": error.detail}, error.status_code)


async def _on_disconnect(request: Request, error: Exception) -> Response:
    """Nobody reads this: the client left while it sent its body."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _on_bug(request: Request, error: Exception) -> Response:
    """The server itself failed; the traceback goes to the log, not to the client."""
    hidden = ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the server's log")
    return JsonResponse(error_body(request.url.path, hidden), hidden.status)
