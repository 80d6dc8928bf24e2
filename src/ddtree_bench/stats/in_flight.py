"""How many requests were in flight at once.

`sent_s` `[R]` and `ended_s` `[R]`: seconds by one clock at which requests began and ended, in any
order.
"""

from __future__ import annotations

import numpy as np

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.interval import FloatArray


def mean_in_flight(sent_s: FloatArray, ended_s: FloatArray) -> float:
    """Requests in flight, averaged over the time from the first one's begin to the last one's end.

    Raises NotEnoughData if no time passes.
    """
    span_s = float(ended_s.max() - sent_s.min()) if len(sent_s) else 0.0
    if span_s <= 0:
        raise NotEnoughData(0, 1, "requests that take time")
    return float((ended_s - sent_s).sum()) / span_s


def most_in_flight(sent_s: FloatArray, ended_s: FloatArray) -> int:
    """Most requests in flight at any time; one that begins as another ends is not beside it.

    0 if there are none.
    """
    times = np.concatenate([sent_s, ended_s])
    changes = np.concatenate([np.ones(len(sent_s)), -np.ones(len(ended_s))])
    in_turn = np.lexsort((changes, times))
    return int(np.cumsum(changes[in_turn]).max(initial=0))
