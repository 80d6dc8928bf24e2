"""How late the client's own clock ticks while it measures: its threads, or the machine, are busy.

The arrival of an event is noted by a thread that may have to wait for its turn. A thread that does
nothing but wake up regularly is as late as those are.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

import numpy as np

TICK_S: Final = 0.02
SHARE: Final = 0.99
"""Of the ticks are at most as late as is told: a single one may be anybody's fault."""


class LagMeter:
    """Notes the lateness of its ticks within its block."""

    def __init__(self) -> None:
        self._late_s: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="lag", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def lag_s(self) -> float | None:
        """Lateness that 99 % of the ticks keep, seconds; None before the first one."""
        return float(np.quantile(self._late_s, SHARE)) if self._late_s else None

    def _tick(self) -> None:
        due_s = time.monotonic() + TICK_S
        while not self._over.wait(max(0.0, due_s - time.monotonic())):
            now_s = time.monotonic()
            self._late_s.append(max(0.0, now_s - due_s))
            due_s = now_s + TICK_S
