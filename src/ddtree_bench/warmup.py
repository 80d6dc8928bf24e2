"""Requests before the measurement, until the server's speed is steady."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ddtree_bench.client.client import Client
from ddtree_bench.config import Warmup
from ddtree_bench.errors import RequestError
from ddtree_bench.records import Sampling
from ddtree_bench.status import Status


@dataclass(frozen=True, slots=True)
class WarmedUp:
    """How the warm-up went; its numbers are used for nothing else."""

    requests: int
    steady: bool
    seconds_per_token: tuple[float, ...]


def warm_up(ask: Callable[[], float], settings: Warmup) -> WarmedUp:
    """Ask until two answers in a row take equally long, or the most requests are reached.

    Args:
        ask: makes one request and returns its seconds per token; what it raises passes through.
        settings: `protocol.warmup`.
    """
    seen: list[float] = []
    while len(seen) < settings.max_requests:
        seen.append(ask())
        if len(seen) >= settings.min_requests and _steady(seen, settings.tolerance):
            return WarmedUp(len(seen), True, tuple(seen))
    return WarmedUp(len(seen), False, tuple(seen))


def seconds_per_token(client: Client, prompt: Sequence[int], length: int) -> float:
    """End-to-end seconds ÷ tokens of one answer; raises RequestError if the answer fails."""
    exchange = client.generate(prompt, Sampling(max_new_tokens=length, ignore_eos=True))
    tokens = exchange.require().completion_tokens
    if tokens is None or tokens == 0:
        raise RequestError(Status.NO_TOKENS, "a warm-up answer holds no tokens")
    return exchange.end_s / tokens


def _steady(seen: Sequence[float], tolerance: float) -> bool:
    """Whether the last two differ by less than the tolerance, relative to the larger."""
    if len(seen) < 2:
        return False
    return abs(seen[-1] - seen[-2]) < tolerance * max(seen[-2:])
