"""Nothing of Python's own stands still in the middle of a measurement."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Garbage is collected before the block and not within it.

    A full collection stops every thread: 60 to 190 ms with the events of 64 answers of 1,024 tokens
    in memory, which then arrive late by as much (benchmarks/LOG.md). Cyclic garbage of a cell waits
    for its end; it is small.
    """
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
