import pytest
from fakes import cell_id, request_record

from ddtree_bench.records import SpecCounts, TreeCounts
from ddtree_bench.session.integrity import fault_of
from ddtree_bench.status import Status


def test_a_whole_cell_has_no_fault():
    """Records that agree with themselves pass."""
    assert fault_of([request_record(), request_record(spec=None)], cold=True) is None


def test_a_cell_without_requests_is_a_fault():
    """Nothing measured is never a success."""
    finding = fault_of([], cold=False)
    assert finding is not None
    assert finding.status is Status.NO_TOKENS


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"completion_tokens": None}, Status.NO_USAGE),
        ({"prompt_tokens": None}, Status.NO_USAGE),
        ({"completion_tokens": 0}, Status.NO_TOKENS),
        ({"finish_reason": None}, Status.MALFORMED),
        ({"output_ids": None}, Status.MALFORMED),
        ({"output_ids": (10, 11)}, Status.BAD_COUNTS),
        ({"events": ()}, Status.MALFORMED),
        # the histogram says 1 + 1 = 2 steps and 0·1 + 1·1 = 1 accepted draft
        (
            {"spec": SpecCounts(verify_steps=3, accepted_drafts=1, histogram=(1, 1))},
            Status.BAD_COUNTS,
        ),
        (
            {"spec": SpecCounts(verify_steps=2, accepted_drafts=2, histogram=(1, 1))},
            Status.BAD_COUNTS,
        ),
        # the prefill's token, 1 accepted draft and 2 bonus tokens: 4 at most
        ({"completion_tokens": 5, "output_ids": (10,) * 5}, Status.BAD_COUNTS),
        ({"overshoot_tokens": 1}, Status.BAD_COUNTS),
        # no step of a block of 8 accepts 8 drafts
        (
            {"spec": SpecCounts(verify_steps=1, accepted_drafts=8, histogram=(0,) * 8 + (1,))},
            Status.BAD_COUNTS,
        ),
        # 2 steps of width 16 hold 30 drafts; a fork that counts by its block says 14
        (
            {
                "spec": SpecCounts(
                    verify_steps=2, accepted_drafts=1, proposed_drafts=14, histogram=(1, 1)
                ),
                "tree": TreeCounts(verify_width=16),
            },
            Status.BAD_COUNTS,
        ),
    ],
)
def test_a_contradiction_is_found_and_named(change, status):
    """One bad request spoils its cell, and the detail says which."""
    bad = request_record(prompt_id="bad", **change)
    finding = fault_of([request_record(), bad], cold=False, block_size=8)
    assert finding is not None
    assert finding.status is status
    assert finding.detail.startswith("bad turn 0: ")


def test_counters_at_their_limits_are_no_contradiction():
    """A retracted request is read again, which gives a token; 7 drafts fill a block of 8."""
    again = request_record(completion_tokens=5, output_ids=(10,) * 5, retractions=1)
    counts = SpecCounts(
        verify_steps=1, accepted_drafts=7, proposed_drafts=15, histogram=(0,) * 7 + (1,)
    )
    full = request_record(spec=counts, tree=TreeCounts(verify_width=16))
    assert fault_of([again, full], cold=False, block_size=8) is None


def test_the_chat_route_needs_no_ids():
    """The OpenAI route gives none; that is no fault."""
    chat = request_record(route="chat", stream=False, output_ids=None, events=(), spec=None)
    assert fault_of([chat], cold=False) is None


def test_the_grave_failure_is_told():
    """Of several failures the one that ended the server is the cell's status."""
    requests = [
        request_record(),
        request_record(status=Status.HTTP_ERROR, detail="429"),
        request_record(status=Status.DIED_IN_REQUEST, detail="exit code 7"),
    ]
    finding = fault_of(requests, cold=False)
    assert finding is not None
    assert finding.status is Status.DIED_IN_REQUEST
    assert finding.detail == "2 of 3 requests failed; p0 turn 0: exit code 7"


def test_a_cold_first_prompt_may_hold_one_cached_token_in_a_hundred():
    """The limit is 1 % of 200 prompt tokens: 2 pass, 3 do not."""
    assert fault_of([request_record(cached_tokens=2)], cold=True) is None
    finding = fault_of([request_record(cached_tokens=3)], cold=True)
    assert finding is not None
    assert finding.status is Status.NOT_COLD
    assert fault_of([request_record(cached_tokens=3)], cold=False) is None


def test_later_prompts_may_share_the_chat_template():
    """Only the prompt that was sent first has nothing to share; file order does not matter."""
    later = request_record(cached_tokens=50, sent_unix_s=1001.0)
    assert fault_of([later, request_record()], cold=True) is None


def test_a_prompt_cached_whole_is_not_cold():
    """A prompt that only lacks its last token was asked before."""
    later = request_record(cached_tokens=199, sent_unix_s=1001.0)
    finding = fault_of([request_record(), later], cold=True)
    assert finding is not None
    assert finding.status is Status.NOT_COLD


def test_a_second_turn_is_cached_by_right():
    """The server has just read the first turn."""
    turn = request_record(turn=1, cached_tokens=199, sent_unix_s=1001.0)
    assert fault_of([request_record(), turn], cold=True) is None


def test_unknown_cached_tokens_are_not_zero_and_not_a_fault():
    """A server that does not tell is believed to have flushed."""
    assert fault_of([request_record(cached_tokens=None)], cold=True) is None


def test_of_prompts_sent_at_once_any_may_come_first():
    """Two in flight: the one sent first was served second, and the other one was cold."""
    cell = cell_id(concurrency=2)
    first = request_record(cell=cell, cached_tokens=24)
    second = request_record(cell=cell, cached_tokens=0, sent_unix_s=1000.001)
    assert fault_of([first, second], cold=True) is None
    warm = request_record(cell=cell, cached_tokens=24, sent_unix_s=1000.001)
    assert fault_of([first, warm], cold=True) is not None
