"""What an estimate is reported with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interval:
    """Two-sided confidence interval at `level`, from `n` values."""

    low: float
    high: float
    level: float
    n: int

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"an interval runs upwards, got [{self.low}, {self.high}]")
        if not 0 < self.level < 1:
            raise ValueError(f"a level lies between 0 and 1, got {self.level}")
