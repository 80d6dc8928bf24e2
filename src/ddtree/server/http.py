"""Request bodies of bounded size, event streams, and clients that go away."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ddtree.server.bodies import to_json
from ddtree.server.errors import ApiError
from ddtree.server.schema import parse_json

BODY_MAX_BYTES: Final = 8 * 2**20
DRAIN_MAX_BYTES: Final = 128 * 2**20


class JsonResponse(Response):
    """`body` as JSON."""

    media_type = "application/json"

    def __init__(self, body: object, status: int = HTTPStatus.OK) -> None:
        super().__init__(to_json(body), status_code=int(status))


async def read_json(request: Request) -> object:
    """The request's body; raises ApiError if it is too large or not JSON."""
    pieces: list[bytes] = []
    size_bytes = 0
    async for piece in request.stream():
        size_bytes += len(piece)
        if size_bytes <= BODY_MAX_BYTES:
            pieces.append(piece)
            continue
        # Read on without keeping: a client that still writes would not see the answer.
        pieces.clear()
        if size_bytes > DRAIN_MAX_BYTES:
            break
    if size_bytes > BODY_MAX_BYTES:
        raise ApiError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body is larger than {BODY_MAX_BYTES} bytes; send a shorter prompt",
        )
    return parse_json(b"".join(pieces))


@asynccontextmanager
async def watching(receive: Receive, on_gone: Callable[[], None]) -> AsyncIterator[None]:
    """Call `on_gone` if the client goes away before the block ends, or the block is cancelled."""
    watcher = asyncio.create_task(_wait_gone(receive, on_gone))
    try:
        yield
    except asyncio.CancelledError:
        on_gone()
        raise
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher


async def _wait_gone(receive: Receive, on_gone: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    on_gone()


class EventStream(Response):
    """Server-sent events as they come; `on_gone` is called if the client leaves before the end."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], on_gone: Callable[[], None]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._events = events
        self._on_gone = on_gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        async with watching(receive, self._on_gone):
            async for event in self._events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
