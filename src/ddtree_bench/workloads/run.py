"""One cell: all prompts of a workload, so many at a time."""

from __future__ import annotations

import itertools
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.client.calm import no_collection
from ddtree_bench.client.client import Client
from ddtree_bench.prompts import Prompt
from ddtree_bench.records import RequestRecord
from ddtree_bench.status import Status
from ddtree_bench.workloads.ask import Asker, CellTask
from ddtree_bench.workloads.hold import hold

__all__ = ["CellTask", "measure_cell", "ordered"]

SERVER_LOST: Final = frozenset({Status.UNREACHABLE, Status.HUNG})
"""After these, further requests would only wait for their own failure."""


def measure_cell(
    client: Client, tokenizer: PromptTokenizer, task: CellTask
) -> tuple[RequestRecord, ...]:
    """The records of all requests, conversation by conversation in the order of their start.

    As many conversations run at a time as the cell's concurrency says, each in a thread; in an open
    loop each begins at its time of arrival, whatever is in flight. A failed
    request ends its own conversation; one that finds the server lost, and `task.should_stop`, end
    the cell: what was not sent has no record. Exceptions of a thread are raised here, and an
    interrupt of the main thread is not held up by requests in flight. No answer is judged here.
    """
    pool = _Pool(client, tokenizer, task)
    threads = [
        threading.Thread(target=pool.work, name=f"client-{number}", daemon=True)
        for number in range(_threads(task))
    ]
    with no_collection():
        pool.start_clock()
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            pool.stopped.set()
    if pool.errors:
        raise pool.errors[0]
    return tuple(record for asker in pool.askers for record in asker.records)


def ordered(prompts: Sequence[Prompt], seed: int, repeat: int) -> tuple[Prompt, ...]:
    """The prompts in the order of a repeat, the same for every server and launch."""
    by_id = sorted(prompts, key=lambda prompt: prompt.id)
    random.Random(f"{seed}:{repeat}").shuffle(by_id)
    return tuple(by_id)


def arrivals(count: int, rate_per_s: float, seed: int, repeat: int) -> tuple[float, ...]:
    """Seconds after the start at which conversations arrive: a Poisson process of this rate.

    The same for every server and launch.
    """
    random_gaps = random.Random(f"{seed}:{repeat}:arrivals")
    gaps = (random_gaps.expovariate(rate_per_s) for _ in range(count))
    return tuple(itertools.accumulate(gaps))


def recorded_arrivals(
    prompts: Sequence[Prompt], rate_per_s: float
) -> tuple[tuple[Prompt, ...], tuple[float, ...]]:
    """The prompts as they once came, and seconds after the start at which each arrives.

    Recorded times are stretched so that the mean rate is this one; their rhythm stays.
    """
    in_turn = sorted(prompts, key=lambda prompt: (prompt.arrived_s or 0.0, prompt.id))
    times = [prompt.arrived_s or 0.0 for prompt in in_turn]
    spread = times[-1] - times[0]
    stretch = (len(times) - 1) / rate_per_s / spread if spread > 0 else 0.0
    return tuple(in_turn), tuple((at - times[0]) * stretch for at in times)


def _threads(task: CellTask) -> int:
    """As many as there may be conversations at a time."""
    return task.cell.concurrency if task.cell.arrivals_per_s is None else len(task.prompts)


@dataclass(slots=True)
class _Pool:
    """What the threads of a cell share."""

    client: Client
    tokenizer: PromptTokenizer
    task: CellTask
    stopped: threading.Event = field(default_factory=threading.Event)
    askers: list[Asker] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    _waiting: queue.SimpleQueue[tuple[tuple[int, Prompt], float | None]] = field(
        default_factory=queue.SimpleQueue
    )
    """Draws of prompts, and seconds after the start at which each arrives (None: at once)."""
    _started_s: float = field(default_factory=time.monotonic)
    _start: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        task = self.task
        self.task = replace(task, should_stop=self._should_stop(task.should_stop))
        prompts = ordered(task.prompts, task.seed, task.cell.repeat)
        rate = task.cell.arrivals_per_s
        times: Iterable[float | None] = itertools.repeat(None)
        if rate is not None and task.workload.arrivals == "recorded":
            prompts, times = recorded_arrivals(prompts, rate)
        elif rate is not None:
            times = arrivals(len(prompts), rate, task.seed, task.cell.repeat)
        draws = itertools.product(range(task.workload.draws or 1), prompts)
        for waiting in zip(draws, times, strict=False):
            self._waiting.put(waiting)

    def start_clock(self) -> None:
        """Let arrivals count from now: making the threads took its time."""
        self._started_s = time.monotonic()

    def work(self) -> None:
        """Hold one conversation after the other until none is left or the cell ends."""
        try:
            while (asker := self._next()) is not None:
                hold(asker)
                if asker.records and asker.records[-1].status in SERVER_LOST:
                    self.stopped.set()
        except BaseException as error:
            # raised again by measure_cell: an exception would die with its thread
            self.errors.append(error)
            self.stopped.set()

    def _next(self) -> Asker | None:
        with self._start:  # so that the list has the order of the queue
            if self.task.should_stop():
                return None
            try:
                (draw, prompt), after_s = self._waiting.get_nowait()
            except queue.Empty:
                return None
            asker = Asker(self.client, self.tokenizer, self.task, prompt, draw)
            if after_s is not None:
                asker.due_s = self._started_s + after_s
                self.stopped.wait(max(0.0, asker.due_s - time.monotonic()))
                if self.task.should_stop():
                    return None
            self.askers.append(asker)
            return asker

    def _should_stop(self, asked: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: self.stopped.is_set() or asked()
