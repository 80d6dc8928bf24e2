"""Whether the records of a cell are whole and do not contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddtree_bench.records import RequestRecord, SpecCounts
from ddtree_bench.status import Status

COLD_SHARE = 0.01
"""Largest share of the first prompt that a flushed server may have cached."""

_SERVER_IS_GONE = (Status.OUT_OF_MEMORY, Status.DIED_IN_REQUEST, Status.HUNG, Status.UNREACHABLE)


class CellFault(NamedTuple):
    """What is wrong with a cell."""

    status: Status
    detail: str


def fault_of(
    requests: Sequence[RequestRecord],
    *,
    cold: bool,
    block_size: int | None = None,
    vocabulary: int | None = None,
) -> CellFault | None:
    """What makes a cell's records unfit to be counted; None if nothing does.

    Args:
        requests: all requests of the cell.
        cold: the prefix cache was flushed before the cell.
        block_size: of the server's drafts, bonus token included, where the configuration tells it.
        vocabulary: token ids lie below it; None where that is not known.
    """
    if not requests:
        return CellFault(Status.NO_TOKENS, "no request was made")
    failed = _failed(requests)
    if failed is not None:
        return failed
    for request in requests:
        for fault in _contradictions(request, block_size, vocabulary):
            where = f"{request.prompt_id} turn {request.turn}"
            return CellFault(fault.status, f"{where}: {fault.detail}")
    return _warm(requests) if cold else None


def _failed(requests: Sequence[RequestRecord]) -> CellFault | None:
    failed = [request for request in requests if not request.status.ok]
    if not failed:
        return None
    # when a server goes, the request that met its end says more than those cut off beside it
    grave = [
        request for status in _SERVER_IS_GONE for request in failed if request.status is status
    ]
    first = (grave or failed)[0]
    share = f"{len(failed)} of {len(requests)} requests failed"
    return CellFault(first.status, f"{share}; {first.prompt_id} turn {first.turn}: {first.detail}")


def _contradictions(
    request: RequestRecord, block_size: int | None, vocabulary: int | None
) -> Iterator[CellFault]:
    tokens = request.completion_tokens
    if tokens is None or request.prompt_tokens is None:
        yield CellFault(Status.NO_USAGE, "no token counts")
    if tokens == 0:
        yield CellFault(Status.NO_TOKENS, "an empty answer")
    if request.finish_reason is None:
        yield CellFault(Status.MALFORMED, "no finish reason")
    if request.route == "generate":
        if request.output_ids is None:
            yield CellFault(Status.MALFORMED, "no token ids")
        elif len(request.output_ids) != tokens:
            said = f"{len(request.output_ids)} ids, but {tokens} tokens counted"
            yield CellFault(Status.BAD_COUNTS, said)
    highest = max(request.output_ids or (), default=0)
    if vocabulary is not None and highest >= vocabulary:
        said = f"token id {highest}, but the vocabulary has {vocabulary}"
        yield CellFault(Status.BAD_COUNTS, said)
    if request.stream and not request.events:
        yield CellFault(Status.MALFORMED, "streamed, but no event carries tokens")
    if request.spec is not None:
        for said in _wrong_counters(request, request.spec, block_size):
            yield CellFault(Status.BAD_COUNTS, said)


def _wrong_counters(
    request: RequestRecord, spec: SpecCounts, block_size: int | None
) -> Iterator[str]:
    """What the counters of speculation contradict: each other, the tokens, or the draft's size."""
    steps = sum(spec.histogram)
    accepted = sum(drafts * count for drafts, count in enumerate(spec.histogram))
    longest = max((drafts for drafts, count in enumerate(spec.histogram) if count), default=0)
    if steps != spec.verify_steps:
        yield f"the histogram holds {steps} steps, {spec.verify_steps} were counted"
    if accepted != spec.accepted_drafts:
        yield f"the histogram holds {accepted} accepted drafts, {spec.accepted_drafts} counted"
    if block_size is not None and longest >= block_size:
        yield f"a step accepted {longest} drafts of a block of {block_size}"
    # each step gives its accepted drafts and one token more; so does each prefill, without a step
    most = 1 + (request.retractions or 0) + spec.accepted_drafts + spec.verify_steps
    tokens = (request.completion_tokens or 0) + request.overshoot_tokens
    if tokens > most:
        yield f"{tokens} tokens, but prefill and verify steps gave {most} at most"
    yield from _wrong_proposals(request, spec)


def _wrong_proposals(request: RequestRecord, spec: SpecCounts) -> Iterator[str]:
    """Whether as many drafts were proposed as the verify width says, where both are told."""
    if request.tree is None or spec.proposed_drafts is None:
        return
    proposed = spec.verify_steps * (request.tree.verify_width - 1)
    if spec.proposed_drafts != proposed:
        yield (
            f"{spec.proposed_drafts} drafts proposed, but {spec.verify_steps} steps of width "
            f"{request.tree.verify_width} hold {proposed}"
        )


def _warm(requests: Sequence[RequestRecord]) -> CellFault | None:
    """A prompt that was cached although the cache had been flushed.

    Later prompts share the chat template's first tokens with earlier ones and may have those
    cached; the first one may not, and none may be cached whole. Of several sent at once any may
    be the server's first: the one with the smallest share counts.
    """
    opening = [r for r in requests if r.turn == 0 and r.cached_tokens is not None]
    opening.sort(key=lambda r: r.sent_unix_s)
    at_once = opening[: opening[0].cell.concurrency] if opening else []
    first = min(at_once, key=_cached_share, default=None)
    for request in opening:
        cached, prompt = request.cached_tokens or 0, request.prompt_tokens or 0
        allowed = COLD_SHARE * prompt if request is first else prompt - 2
        if cached > allowed:
            said = f"{request.prompt_id}: {cached} of {prompt} prompt tokens were cached"
            return CellFault(Status.NOT_COLD, said)
    return None


def _cached_share(request: RequestRecord) -> float:
    return (request.cached_tokens or 0) / max(1, request.prompt_tokens or 0)
