"""A local server that answers with prepared bytes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Part = bytes | Callable[[], None]


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as the server got it."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]
    peer: tuple[str, int]


@dataclass(slots=True)
class Reply:
    """An HTTP answer: parts are written one by one, callables are called in between."""

    parts: tuple[Part, ...] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunked: bool = True
    complete: bool = True
    """False closes the connection before the body's end."""


class Replay(ThreadingHTTPServer):
    """Answers each request with the next reply."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: list[Reply] = []
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, *parts: Part, **options: Any) -> None:
        """Prepare one more reply."""
        self.replies.append(Reply(parts, **options))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Replay

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self._reply()

    def _reply(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append(
            Seen(
                self.command,
                self.path,
                json.loads(raw) if raw else None,
                dict(self.headers.items()),
                self.client_address,
            )
        )
        reply = self.server.replies.pop(0)
        self.send_response(reply.status)
        for key, value in reply.headers.items():
            self.send_header(key, value)
        self.send_header(
            *(("Transfer-Encoding", "chunked") if reply.chunked else ("Connection", "close"))
        )
        self.end_headers()
        for part in reply.parts:
            self._write(part, reply.chunked)
        if reply.chunked and reply.complete:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = not (reply.chunked and reply.complete)

    def _write(self, part: Part, chunked: bool) -> None:
        if callable(part):
            part()
            return
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
        self.wfile.flush()


@pytest.fixture
def replay() -> Iterator[Replay]:
    """A running server without replies yet."""
    with Replay() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
