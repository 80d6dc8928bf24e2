"""A point in time that several waits share."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of the monotonic clock; handed down, so that waits add up to no more than asked."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """The moment so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds left, 0 when it has passed."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.at_s
