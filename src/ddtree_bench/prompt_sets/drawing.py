"""What all selections of shipped prompts share: reading lines, drawing by seed, tags."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")

SEED: Final = 2026


def json_lines(text: bytes) -> Iterator[Any]:
    """The values of JSON Lines, empty lines left out."""
    return (json.loads(line) for line in text.split(b"\n") if line.strip())


def shuffled(items: Sequence[T], name: str) -> list[T]:
    """The items in an order that the seed and a name decide."""
    order = list(items)
    random.Random(f"{SEED}:{name}").shuffle(order)
    return order


def first(items: Iterable[T], size: int) -> Iterator[T]:
    """At most so many items; no further one is made."""
    return itertools.islice(items, size)


def tags(source: str, domain: str, length: str) -> dict[str, str]:
    """The four tags that every shipped prompt has."""
    return {"language": "en", "domain": domain, "length": length, "source": source}
