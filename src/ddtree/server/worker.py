"""The one thread that runs the engine: one request at a time, first come first served."""

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from types import GeneratorType
from typing import Final, Protocol

from ddtree.engine import EngineSpec, Sampling, Step
from ddtree.server.clock import now_s
from ddtree.server.errors import EngineFailure
from ddtree.server.generation import Event, Generation

log: Final = logging.getLogger(__name__)

CLOSING: Final = "the server is shutting down"


class EngineLike(Protocol):
    """What the server needs of an engine; `ddtree.engine.Engine` is one."""

    spec: EngineSpec
    vocab_size: int
    context_length: int
    eos_token_ids: frozenset[int]
    verify_width: int

    def generate(
        self, input_ids: Sequence[int], sampling: Sampling, top_logprobs: int = 0
    ) -> Iterator[Step]:
        """Steps of one answer; the last has a finish reason."""
        ...


class Worker:
    """Queue and thread. `start`, then `submit` and `cancel` from any thread, then `close`."""

    def __init__(self, engine: EngineLike) -> None:
        self._engine = engine
        self._queue: deque[Generation] = deque()
        self._running: Generation | None = None
        self._closing = False
        self._changed = threading.Condition()
        # Daemon: a forward pass that outlives `close` must not keep the process alive.
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._steps_done = 0

    @property
    def steps_done(self) -> int:
        """Forward passes of the target since the start, over all requests."""
        return self._steps_done

    @property
    def alive(self) -> bool:
        """Whether requests are taken and served."""
        return self._thread.is_alive() and not self._closing

    def load(self) -> tuple[int, int]:
        """Running and queued requests."""
        with self._changed:
            return int(self._running is not None), len(self._queue)

    def live_ids(self) -> frozenset[str]:
        """Ids of the running and queued requests."""
        with self._changed:
            return frozenset(generation.rid for generation in self._live())

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def submit(self, generation: Generation) -> None:
        """Queue `generation`; its reader gets events until one is the last."""
        with self._changed:
            if not self._closing:
                self._queue.append(generation)
                self._changed.notify()
                return
        generation.deliver(generation.abort(CLOSING))

    def cancel(self, generation: Generation, why: str) -> None:
        """End `generation`: at once if queued, after the step in progress if running."""
        with self._changed:
            generation.cancelled = why
            if generation not in self._queue:
                return
            self._queue.remove(generation)
        generation.deliver(generation.abort(why))

    def abort(self, rid: str | None, why: str) -> None:
        """Cancel the request called `rid`, or all of them if None."""
        with self._changed:
            live = self._live()
        for generation in live:
            if rid is None or generation.rid == rid:
                self.cancel(generation, why)

    def close(self, timeout_s: float) -> bool:
        """Abort everything and end the thread; False if a step still runs after `timeout_s`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self.abort(None, CLOSING)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _live(self) -> list[Generation]:
        running = [] if self._running is None else [self._running]
        return [*running, *self._queue]

    def _loop(self) -> None:
        while (generation := self._next()) is not None:
            last = self._serve(generation)
            # Free before the reader knows: whoever has an answer finds the server idle.
            with self._changed:
                self._running = None
            generation.deliver(last)

    def _next(self) -> Generation | None:
        """Wait for the next request; None when closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._queue)
            if self._closing:
                return None
            self._running = self._queue.popleft()
            return self._running

    def _serve(self, generation: Generation) -> Event:
        """Run `generation`, deliver all its events but the last, and return that one."""
        try:
            return self._drive(generation)
        except Exception as error:  # the engine may raise anything; the server outlives it
            log.exception("request %s failed", generation.rid)
            generation.times.finished_s = now_s()
            return EngineFailure(f"{type(error).__name__}: {error}")

    def _drive(self, generation: Generation) -> Event:
        generation.times.started_s = now_s()
        # The engine gives the token's own log-probability only along with at least one other.
        tops = 0 if generation.top_logprobs is None else max(generation.top_logprobs, 1)
        steps = self._engine.generate(generation.input_ids, generation.sampling, tops)
        try:
            for step in steps:
                self._steps_done += 1
                if generation.cancelled is not None:
                    return generation.abort(generation.cancelled)
                snapshot = generation.add(step)
                if snapshot.finish is not None:
                    return snapshot
                generation.deliver(snapshot)
        finally:
            if isinstance(steps, GeneratorType):
                steps.close()
        raise RuntimeError("it ended without a finish reason")
