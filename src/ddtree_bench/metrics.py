"""From the records of requests to the numbers derived from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.records import RequestRecord, SpecCounts
from ddtree_bench.stats import speed
from ddtree_bench.stats.acceptance import acceptance_length
from ddtree_bench.stats.in_flight import mean_in_flight, most_in_flight
from ddtree_bench.stats.interval import FloatArray, IntArray


class RequestMetrics(NamedTuple):
    """Derived numbers of one request; None = not measured."""

    ttft_s: float | None
    tpot_s: float | None
    burst_gap_s: float | None
    decode_tok_per_s: float | None
    tok_per_s: float | None
    acceptance_length: float | None
    step_time_s: float | None
    draft_time_s: float | None
    verify_width: int | None


class InFlight(NamedTuple):
    """Requests in flight during a cell: on average (None: no time passed), and at most."""

    mean: float | None
    most: int


def in_flight(requests: Sequence[RequestRecord]) -> InFlight:
    """How many of these requests were in flight at once."""
    sent_s = np.array([request.sent_unix_s for request in requests], dtype=np.float64)
    ended_s = sent_s + np.array([request.end_s for request in requests], dtype=np.float64)
    mean = _measured(lambda: mean_in_flight(sent_s, ended_s))
    return InFlight(mean, most_in_flight(sent_s, ended_s))


def derive(request: RequestRecord, *, plain: bool) -> RequestMetrics:
    """The numbers of one request.

    Args:
        request: ok or not; what it lacks stays None.
        plain: the server decodes plainly, a step is a token.
    """
    at_s = np.array([event.at_s for event in request.events], dtype=np.float64)
    tokens = np.array([event.tokens for event in request.events], dtype=np.int64)
    tpot_s = _measured(lambda: speed.time_per_token(at_s, tokens))
    return RequestMetrics(
        ttft_s=_measured(lambda: speed.time_to_first_token(at_s)),
        tpot_s=tpot_s,
        burst_gap_s=_measured(lambda: speed.burst_gap(at_s)),
        decode_tok_per_s=None if tpot_s is None else 1 / tpot_s,
        tok_per_s=_tok_per_s(request),
        acceptance_length=_acceptance(request.spec),
        step_time_s=tpot_s if plain else _step_time(request, at_s, tokens),
        draft_time_s=_draft_time(request.spec),
        verify_width=_verify_width(request),
    )


def _measured(formula: Callable[[], float]) -> float | None:
    """The formula's value, None where the request has too little for it."""
    try:
        return formula()
    except NotEnoughData:
        return None


def _tok_per_s(request: RequestRecord) -> float | None:
    if request.completion_tokens is None or request.end_s == 0:
        return None
    return request.completion_tokens / request.end_s


def produced_tokens(spec: SpecCounts) -> int:
    """Tokens that verify steps produced: accepted drafts and a bonus token a step."""
    return spec.accepted_drafts + spec.verify_steps


def _acceptance(spec: SpecCounts | None) -> float | None:
    if spec is None:
        return None
    produced, steps = np.array([produced_tokens(spec)]), np.array([spec.verify_steps])
    return _measured(lambda: acceptance_length(produced, steps))


def _step_time(request: RequestRecord, at_s: FloatArray, tokens: IntArray) -> float | None:
    """None also where tokens were cut: the steps that made them are counted, their events gone."""
    if request.spec is None or request.overshoot_tokens > 0:
        return None
    steps = request.spec.verify_steps
    return _measured(lambda: speed.step_time(at_s, tokens, steps))


def _draft_time(spec: SpecCounts | None) -> float | None:
    """Seconds of drafting a step; None where the engine does not tell."""
    if spec is None or spec.drafting_s is None or spec.verify_steps == 0:
        return None
    return spec.drafting_s / spec.verify_steps


def _verify_width(request: RequestRecord) -> int | None:
    """Tokens verified in a step: as reported for a tree, else from the proposed drafts."""
    if request.tree is not None:
        return request.tree.verify_width
    spec = request.spec
    if spec is None or spec.proposed_drafts is None or spec.verify_steps == 0:
        return None
    drafts, rest = divmod(spec.proposed_drafts, spec.verify_steps)
    return drafts + 1 if rest == 0 else None
