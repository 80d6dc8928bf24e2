"""Requests before the measurement, until the server's speed is steady."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from ddtree_bench.client.client import Client
from ddtree_bench.config import Warmup
from ddtree_bench.errors import RequestError
from ddtree_bench.prompts import prompts_of
from ddtree_bench.records import Sampling
from ddtree_bench.session.spec import SessionSpec
from ddtree_bench.status import Status

WARMUP_TEXT: Final = "Tell a story about a lighthouse keeper who finds a letter in a bottle."
"""No prompt of a workload, whose answer would then lie in the prefix cache."""


@dataclass(frozen=True, slots=True)
class WarmedUp:
    """How the warm-up at one concurrency went; its numbers are used for nothing else."""

    concurrency: int
    steady: bool
    compiling: bool
    """Kernels were compiled or graphs captured during the last time."""
    seconds_per_token: tuple[float, ...]
    """One for each time that `concurrency` requests were sent at once."""

    @property
    def requests(self) -> int:
        """Requests sent."""
        return self.concurrency * len(self.seconds_per_token)

    @property
    def said(self) -> str:
        """How it ended, for a finding."""
        still = ", kernels were still compiled" if self.compiling else ""
        return f"after {self.requests} requests, {self.concurrency} in flight{still}"


def _none() -> int:
    return 0


def warm_up(
    ask: Callable[[], float],
    settings: Warmup,
    concurrency: int = 1,
    compilations: Callable[[], int] = _none,
) -> WarmedUp:
    """Ask until nothing is compiled and speed stays the same, or until the cap.

    Args:
        ask: sends `concurrency` requests at once and returns seconds per token; what it raises
            passes through.
        settings: `protocol.warmup`.
        concurrency: requests in flight.
        compilations: how often the server has told so far that it compiles or captures.
    """
    seen: list[float] = []
    before = compilations()
    compiling = steady = False
    while len(seen) < settings.max_requests and not steady:
        seen.append(ask())
        now = compilations()
        compiling, before = now > before, now
        enough = len(seen) >= settings.min_requests
        steady = enough and not compiling and _steady(seen, settings.tolerance)
    return WarmedUp(concurrency, steady, compiling, tuple(seen))


def seconds_per_token(
    client: Client, prompt: Sequence[int], length: int, concurrency: int = 1
) -> float:
    """Mean end-to-end seconds ÷ tokens of answers asked for at once.

    Raises RequestError if an answer fails.
    """

    def ask(_: int) -> float:
        exchange = client.generate(prompt, Sampling(max_new_tokens=length, ignore_eos=True))
        tokens = exchange.require().completion_tokens
        if tokens is None or tokens == 0:
            raise RequestError(Status.NO_TOKENS, "a warm-up answer holds no tokens")
        return exchange.end_s / tokens

    with ThreadPoolExecutor(concurrency) as pool:
        return sum(pool.map(ask, range(concurrency))) / concurrency


def concurrencies(spec: SessionSpec) -> tuple[int, ...]:
    """The smallest and the largest number of requests in flight that a session measures."""
    found = {value for workload in spec.workloads.values() for value in workload.concurrency}
    return tuple(sorted({min(found), max(found)})) if found else (1,)


def longest_text(spec: SessionSpec) -> str | None:
    """A text of about the characters of the longest prompt; None if the warm-up's own is longer."""
    lengths = [
        len(prompt.system or "") + sum(map(len, prompt.turns))
        for workload in spec.workloads.values()
        for prompt in prompts_of(workload, spec.protocol.seed)
    ]
    times = max(lengths, default=0) // len(WARMUP_TEXT)
    return " ".join([WARMUP_TEXT] * times) if times > 1 else None


def _steady(seen: Sequence[float], tolerance: float) -> bool:
    """Whether the last two differ by less than the tolerance, relative to the larger."""
    if len(seen) < 2:
        return False
    return abs(seen[-1] - seen[-2]) < tolerance * max(seen[-2:])
