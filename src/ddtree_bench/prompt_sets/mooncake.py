"""Mooncake traces: when requests came, how long they were, and what they shared; no text.

The text is made up: each block of 512 tokens is drawn from the block's hash, so that two requests
that shared a prefix then share one here, too. Made-up words say nothing of acceptance: such a run
measures prefill and prefix cache.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from ddtree_bench.prompt_sets.adapter import Adapter, Fields, mapping, needed

BLOCK_TOKENS: Final = 512
"""Tokens that one hash of the trace stands for."""

# most tokenizers have a token for each of these after a blank
_TEXT: Final = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work night point "
    "home water room mother area money story fact month lot right study book eye job word business "
    "issue side kind head house service friend father power hour game line end member law car city "
    "community name president team minute idea kid body information back parent face others level "
    "office door health person art war history party result change morning reason research girl "
    "guy moment air teacher force education"
)
_WORDS: Final = tuple(_TEXT.split())


def _request(number: int, entry: object) -> Fields:
    line = mapping(entry)
    hashes = line.get("hash_ids", [])
    length = needed(line, "input_length", int)
    if length < 1:
        raise ValueError(f'"input_length": at least 1 expected, got {length}')
    if not isinstance(hashes, list):
        raise ValueError(f'"hash_ids": a list expected, got {type(hashes).__name__}')
    milliseconds = line.get("timestamp")
    if not isinstance(milliseconds, int | float):
        raise ValueError(f'"timestamp": milliseconds expected, got {milliseconds!r}')
    return {
        "id": f"line-{number}",
        "turns": [" ".join(_words(hashes, length, number))],
        "tags": {
            "source": "mooncake",
            "timestamp_s": f"{milliseconds / 1000:g}",
            "expected_tokens": str(needed(line, "output_length", int)),
        },
    }


def _words(hashes: list[Any], length: int, number: int) -> Iterator[str]:
    """About `length` tokens: a word each, block by block; what no hash covers is the line's own."""
    for block, start in enumerate(range(0, length, BLOCK_TOKENS)):
        seed = f"hash {hashes[block]}" if block < len(hashes) else f"line {number}.{block}"
        yield from random.Random(seed).choices(_WORDS, k=min(BLOCK_TOKENS, length - start))


MOONCAKE: Final = Adapter(
    'a JSON object a line with "timestamp" (ms), "input_length", "output_length" and "hash_ids"',
    _request,
)
