"""Server-sent events out of bytes, without I/O.

Source: WHATWG HTML, section "Server-sent events". Only `data` and `event` matter here: ids and
reconnection times serve a client that reconnects, and this one never does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_BYTE_ORDER_MARK: Final = "\ufeff"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event."""

    data: str
    name: str = "message"


@dataclass(slots=True)
class SseParser:
    """Turns chunks of a body, cut anywhere, into events.

    Lines end at LF, CRLF or CR and nowhere else: `str.splitlines` would also cut at U+2028, which
    may stand inside JSON. Bytes are decoded by whole lines, so a cut character cannot be torn.
    """

    _rest: bytes = b""
    _data: list[str] = field(default_factory=list)
    _name: str = ""
    _at_start: bool = True
    _after_cr: bool = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Events that `chunk` completes, in order."""
        events: list[SseEvent] = []
        for line in self._lines(chunk):
            if line:
                self._take(line)
            elif (event := self._dispatch()) is not None:
                events.append(event)
        return events

    def close(self) -> str:
        """What was left unterminated at the end of the body; "" after a clean end.

        The standard says to discard such an event; the caller learns that there was one.
        """
        return "\n".join([*self._data, self._rest.decode(errors="replace")]).strip()

    def _lines(self, chunk: bytes) -> list[str]:
        if not chunk:
            return []
        if self._after_cr:  # a CRLF cut in the middle ends one line, not two
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        data = self._rest + chunk
        lines = data.splitlines()  # bytes, unlike str, end lines at these three only
        self._rest = b"" if data.endswith((b"\n", b"\r")) or not lines else lines.pop()
        return [self._decoded(line) for line in lines]

    def _decoded(self, line: bytes) -> str:
        text = line.decode(errors="replace")
        if self._at_start:
            self._at_start = False
            return text.removeprefix(_BYTE_ORDER_MARK)
        return text

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value

    def _dispatch(self) -> SseEvent | None:
        data, name = self._data, self._name
        self._data, self._name = [], ""
        return SseEvent("\n".join(data), name or "message") if data else None
