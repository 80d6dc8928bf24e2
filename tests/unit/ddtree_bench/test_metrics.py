from typing import Any

import pytest

from ddtree_bench.metrics import derive
from ddtree_bench.records import CellId, Event, RequestRecord, Sampling, SpecCounts, TreeCounts
from ddtree_bench.status import Status

CELL = CellId(server="s", launch=1, workload="short", concurrency=1, repeat=1)


def request(**changes: object) -> RequestRecord:
    """Nine tokens in three events, two verify steps that accepted three drafts each."""
    fields: dict[str, Any] = {
        "cell": CELL,
        "prompt_id": "p",
        "turn": 0,
        "prompt_sha256": "0",
        "route": "generate",
        "stream": True,
        "sampling": Sampling(max_new_tokens=9),
        "sent_unix_s": 0.0,
        "events": tuple(Event(at_s=at_s, tokens=n) for at_s, n in ((0.5, 1), (0.7, 5), (0.9, 9))),
        "end_s": 1.0,
        "completion_tokens": 9,
        "spec": SpecCounts(verify_steps=2, accepted_drafts=6, histogram=(0, 0, 0, 2)),
    }
    return RequestRecord.model_validate({**fields, **changes})


def test_numbers_of_a_drafted_answer() -> None:
    """All derived numbers of one request, by hand."""
    metrics = derive(request(), plain=False)
    assert metrics.ttft_s == 0.5
    assert metrics.tpot_s == pytest.approx(0.4 / 8)
    assert metrics.decode_tok_per_s == pytest.approx(8 / 0.4)
    assert metrics.burst_gap_s == pytest.approx(0.2)
    assert metrics.tok_per_s == pytest.approx(9 / 1.0)
    assert metrics.acceptance_length == pytest.approx((6 + 2) / 2)
    assert metrics.step_time_s == pytest.approx(0.4 / 2)


def test_plain_step_is_a_token() -> None:
    """Plain decoding's step time is its time per token; acceptance is not measured."""
    metrics = derive(request(spec=None), plain=True)
    assert metrics.step_time_s == metrics.tpot_s == pytest.approx(0.05)
    assert metrics.acceptance_length is None


def test_drafted_answer_without_counters_has_no_step_time() -> None:
    """Where the route gives no counters, the time per token is not taken for a step."""
    assert derive(request(spec=None), plain=False).step_time_s is None


def test_cut_tokens_leave_no_step_time() -> None:
    """Steps past the stop token are counted by the server but their events are gone."""
    assert derive(request(overshoot_tokens=3), plain=False).step_time_s is None


def test_answer_in_one_piece_has_end_to_end_speed_only() -> None:
    """Not streamed: nothing is known between sending and the end, zero is not put there."""
    metrics = derive(request(stream=False, events=(), spec=None), plain=False)
    assert metrics.tok_per_s == pytest.approx(9.0)
    assert metrics.ttft_s is metrics.tpot_s is metrics.burst_gap_s is None
    assert metrics.decode_tok_per_s is None


def test_no_verify_step_has_no_acceptance() -> None:
    """An answer of one token was never verified: acceptance is not measured, not zero."""
    none = SpecCounts(verify_steps=0, accepted_drafts=0, histogram=())
    metrics = derive(request(spec=none), plain=False)
    assert metrics.acceptance_length is None
    assert metrics.step_time_s is None


@pytest.mark.parametrize(
    ("proposed", "tree_width", "width"), [(30, None, 16), (31, None, None), (None, 65, 65)]
)
def test_verify_width(proposed: int | None, tree_width: int | None, width: int | None) -> None:
    """Reported for trees, drafts a step and the root for chains, else not measured."""
    spec = SpecCounts(verify_steps=2, accepted_drafts=0, proposed_drafts=proposed, histogram=(2,))
    tree = None if tree_width is None else TreeCounts(verify_width=tree_width)
    assert derive(request(spec=spec, tree=tree), plain=False).verify_width == width


@pytest.mark.parametrize(
    "spec", [None, SpecCounts(verify_steps=0, accepted_drafts=0, histogram=())]
)
def test_width_without_steps_is_not_measured(spec: SpecCounts | None) -> None:
    """Without counters or steps there is no width."""
    assert derive(request(spec=spec), plain=False).verify_width is None


def test_failed_request_gives_what_it_has() -> None:
    """A request that broke off after its first event still has a time to first token."""
    metrics = derive(
        request(
            status=Status.UNREACHABLE,
            events=(Event(at_s=0.5, tokens=1),),
            completion_tokens=None,
            spec=None,
        ),
        plain=False,
    )
    assert metrics.ttft_s == 0.5
    assert metrics.tok_per_s is None
