"""One clock for all timestamps: reads as Unix time, never steps back."""

import time
from typing import Final

_EPOCH_OFFSET_S: Final = time.time() - time.monotonic()


def now_s() -> float:
    """Seconds since the Unix epoch, monotonic within this process."""
    return time.monotonic() + _EPOCH_OFFSET_S
