"""What an adapter is, and how a file is cut into entries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

Entry = tuple[int, str | object]
"""The line that an entry begins in, and its JSON text or, of a list, its value."""

Fields = dict[str, Any]
"""Keys of `ddtree_bench.prompts.Prompt`, not validated yet."""


def lines(text: str) -> Iterator[Entry]:
    """Every line with something in it; only a line feed ends a line, as JSON Lines says."""
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


@dataclass(frozen=True, slots=True)
class Adapter:
    """Reads one foreign format."""

    expected: str
    """What an entry must be, for the message about a wrong one."""
    fields: Callable[[int, Any], Fields | None]
    """A prompt's keys from an entry and its number; None if it holds no question.

    Raises ValueError with what is wrong.
    """
    entries: Callable[[str], Iterator[Entry]] = lines
    """Cuts a file's text; raises json.JSONDecodeError if it is one broken list."""


def list_or_lines(text: str) -> Iterator[Entry]:
    """Entries of one JSON list, or of JSON lines."""
    return _elements(text) if text.lstrip().startswith("[") else lines(text)


def _elements(text: str) -> Iterator[Entry]:
    """The values of a JSON list, each with the line in which it begins."""
    decoder = json.JSONDecoder()
    place = _next(text, text.index("[") + 1)
    line, counted = 1, 0
    while text[place : place + 1] != "]":
        value, end = decoder.raw_decode(text, place)
        line, counted = line + text.count("\n", counted, place), place
        yield line, value
        place = _next(text, end)
        if text[place : place + 1] == ",":
            place = _next(text, place + 1)
        elif text[place : place + 1] != "]":
            raise json.JSONDecodeError("a comma or ] expected", text, place)


def _next(text: str, place: int) -> int:
    """Where the next thing begins that is no white space."""
    while text[place : place + 1].isspace():
        place += 1
    return place


def mapping(entry: object) -> dict[str, Any]:
    """The entry, which must be a JSON object; raises ValueError."""
    if not isinstance(entry, dict):
        raise ValueError(f"a JSON object expected, got {type(entry).__name__}")
    return entry


def needed(entry: dict[str, Any], key: str, kind: type[T]) -> T:
    """The value of a key, which must be of this kind; raises ValueError."""
    value = entry.get(key)
    # a bool is an int to Python, never in these files
    if not isinstance(value, kind) or isinstance(value, bool):
        got = "nothing" if value is None else type(value).__name__
        raise ValueError(f'"{key}": {kind.__name__} expected, got {got}')
    return value


def tags_of(entry: dict[str, Any], **names: str) -> dict[str, str]:
    """Tags from keys of the entry that have a value, under this project's names."""
    return {
        name: str(entry[key]) for name, key in names.items() if entry.get(key) not in (None, "")
    }
