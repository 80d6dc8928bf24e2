"""What server-sent events become, however the bytes are cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_bench.client.sse import SseEvent, SseParser

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sglang-0.5.17-h200"


def events(*chunks: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize("server", ["ar", "dflash"])
@pytest.mark.parametrize("name", ["generate_stream.sse", "chat_stream.sse"])
def test_a_recorded_body_reads_the_same_cut_at_every_byte(server: str, name: str) -> None:
    """Two chunks cut at any place, or single bytes, give the events of the whole body."""
    body = (FIXTURES / server / name).read_bytes()
    whole = events(body)
    assert whole[-1].data == "[DONE]"
    assert len(whole) == body.count(b"\n\n")
    assert events(*(body[at : at + 1] for at in range(len(body)))) == whole
    # two chunks: the last 2 kB hold every kind of boundary that the body has
    tail = body[-2000:]
    whole_tail = events(tail)
    for at in range(len(tail)):
        assert events(tail[:at], tail[at:]) == whole_tail


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_three_ways_and_a_cut_line_end_is_one(end: bytes) -> None:
    """LF, CRLF and CR end lines, also when CR and LF come in two chunks."""
    body = b"data: a" + end + b"data: b" + end + end + b"data: c" + end + end
    expected = [SseEvent("a\nb"), SseEvent("c")]
    for at in range(len(body) + 1):
        assert events(body[:at], b"", body[at:]) == expected


def test_other_separators_stay_inside_the_data() -> None:
    """U+2028, U+0085 and form feed are text, although `str.splitlines` cuts at them."""
    text = "a\u2028b\x85c\x0cd"
    assert events(f"data: {text}\n\n".encode()) == [SseEvent(text)]


def test_a_character_cut_in_the_middle_is_whole_again() -> None:
    """No byte of a multi-byte character is decoded alone."""
    body = "data: 東🙂\n\n".encode()
    for at in range(len(body)):
        assert events(body[:at], body[at:]) == [SseEvent("東🙂")]


def test_comments_names_and_empty_events() -> None:
    """A comment is nothing, `event:` names, an event without data is not dispatched."""
    body = b"\xef\xbb\xbf: ping\n\nevent: error\ndata:no space\n\nevent: empty\n\ndata\n\nid: 7\n\n"
    assert events(body) == [SseEvent("no space", "error"), SseEvent("")]


@pytest.mark.parametrize("tail", [b'data: {"a"', b'data: {"a"\n', b'data: {"a"\r'])
def test_an_unterminated_event_is_reported_and_not_dispatched(tail: bytes) -> None:
    """A body that ends within an event is told by `close`."""
    parser = SseParser()
    assert parser.feed(b"data: 1\n\n" + tail) == [SseEvent("1")]
    assert '{"a"' in parser.close()


def test_a_clean_end_leaves_nothing() -> None:
    """After a whole event `close` has nothing to report, whatever ends the lines."""
    for end in (b"\n", b"\r\n", b"\r"):
        parser = SseParser()
        parser.feed(b"data: 1" + end + end)
        assert parser.close() == ""
