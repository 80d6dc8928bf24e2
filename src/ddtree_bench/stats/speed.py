"""Times and speeds of one request from the arrival of its events.

`at_s` `[E]`: seconds after the request was sent, ascending; `tokens` `[E]`: completion tokens so
far, cumulative. The first event closes prefill; what comes after it is decoding.
"""

from __future__ import annotations

import numpy as np

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.interval import FloatArray, IntArray


def time_to_first_token(at_s: FloatArray) -> float:
    """Seconds from sending to the first event with tokens.

    Raises NotEnoughData if nothing was streamed.
    """
    _need_events(at_s, 1)
    return float(at_s[0])


def decode_speed(at_s: FloatArray, tokens: IntArray) -> float:
    """Tokens per second after the first event; prefill does not enter.

    Raises NotEnoughData if one event carries all tokens or no time passes between events.
    """
    return 1 / time_per_token(at_s, tokens)


def time_per_token(at_s: FloatArray, tokens: IntArray) -> float:
    """Seconds per token after the first event (TPOT): the inverse of `decode_speed`.

    Raises NotEnoughData as `decode_speed` does.
    """
    after_first = int(tokens[-1] - tokens[0]) if len(tokens) else 0
    if after_first == 0:
        raise NotEnoughData(0, 1, "tokens after the first event")
    return _decoding_s(at_s) / after_first


def burst_gap(at_s: FloatArray) -> float:
    """Median seconds between two events in a row: how long a reader waits for the next burst.

    Raises NotEnoughData with fewer than two events.
    """
    _need_events(at_s, 2)
    gaps = np.sort(np.diff(at_s))  # np.median takes ten times as long for so few
    middle = len(gaps) // 2
    return float(gaps[middle] + gaps[~middle]) / 2


def step_time(at_s: FloatArray, tokens: IntArray, verify_steps: int) -> float:
    """Seconds per verify step after the first event.

    All verify steps lie after the first event if that event carries prefill's single token. If it
    carries more, nobody knows how many steps it took.

    Raises NotEnoughData with no verify step, fewer than two events, or a first event of several
    tokens.
    """
    if verify_steps == 0:
        raise NotEnoughData(0, 1, "verify steps")
    decoding_s = _decoding_s(at_s)
    if tokens[0] != 1:
        raise NotEnoughData(0, 1, "first events of a single token")
    return decoding_s / verify_steps


def _decoding_s(at_s: FloatArray) -> float:
    """Seconds from the first event to the last, above 0."""
    _need_events(at_s, 2)
    span = float(at_s[-1] - at_s[0])
    if span <= 0:
        raise NotEnoughData(1, 2, "distinct arrival times")
    return span


def _need_events(at_s: FloatArray, need: int) -> None:
    if len(at_s) < need:
        raise NotEnoughData(len(at_s), need, "events")
