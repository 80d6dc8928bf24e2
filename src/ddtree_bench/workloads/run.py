"""One cell: all prompts of a workload, so many at a time."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.client.calm import no_collection
from ddtree_bench.client.client import Client
from ddtree_bench.prompts import Prompt, PythonTestsCheck
from ddtree_bench.records import RequestRecord
from ddtree_bench.status import Status
from ddtree_bench.workloads.ask import Asker, CellTask
from ddtree_bench.workloads.conversation import converse, judge
from ddtree_bench.workloads.run_code import require_isolation
from ddtree_bench.workloads.tool_loop import run_tools

__all__ = ["CellTask", "measure_cell", "ordered"]

SERVER_LOST: Final = frozenset({Status.UNREACHABLE, Status.HUNG})
"""After these, further requests would only wait for their own failure."""


def measure_cell(
    client: Client, tokenizer: PromptTokenizer, task: CellTask
) -> tuple[RequestRecord, ...]:
    """The records of all requests, conversation by conversation in the order of their start.

    As many conversations run at a time as the cell's concurrency says, each in a thread. A failed
    request ends its own conversation; one that finds the server lost, and `task.should_stop`, end
    the cell: what was not sent has no record. Exceptions of a thread are raised here, and an
    interrupt of the main thread is not held up by requests in flight.

    Raises:
        MachineError: code is to be run and cannot be kept off the network here.
    """
    if any(isinstance(prompt.check, PythonTestsCheck) for prompt in task.prompts):
        require_isolation(task.workload.run_code)
    pool = _Pool(client, tokenizer, task)
    threads = [
        threading.Thread(target=pool.work, name=f"client-{number}", daemon=True)
        for number in range(task.cell.concurrency)
    ]
    with no_collection():
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            pool.stopped.set()
    if pool.errors:
        raise pool.errors[0]
    for asker in pool.askers:
        judge(asker)
    return tuple(record for asker in pool.askers for record in asker.records)


def ordered(prompts: Sequence[Prompt], seed: int, repeat: int) -> tuple[Prompt, ...]:
    """The prompts in the order of a repeat, the same for every server and launch."""
    by_id = sorted(prompts, key=lambda prompt: prompt.id)
    random.Random(f"{seed}:{repeat}").shuffle(by_id)
    return tuple(by_id)


@dataclass(slots=True)
class _Pool:
    """What the threads of a cell share."""

    client: Client
    tokenizer: PromptTokenizer
    task: CellTask
    stopped: threading.Event = field(default_factory=threading.Event)
    askers: list[Asker] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    _waiting: queue.SimpleQueue[Prompt] = field(default_factory=queue.SimpleQueue)
    _start: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        task = self.task
        self.task = replace(task, should_stop=self._should_stop(task.should_stop))
        for prompt in ordered(task.prompts, task.seed, task.cell.repeat):
            self._waiting.put(prompt)

    def work(self) -> None:
        """Hold one conversation after the other until none is left or the cell ends."""
        try:
            while (asker := self._next()) is not None:
                (run_tools if asker.prompt.tools else converse)(asker)
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
                prompt = self._waiting.get_nowait()
            except queue.Empty:
                return None
            self.askers.append(Asker(self.client, self.tokenizer, self.task, prompt))
            return self.askers[-1]

    def _should_stop(self, asked: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: self.stopped.is_set() or asked()
