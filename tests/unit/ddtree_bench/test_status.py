import pytest

from ddtree_bench.status import Status


def test_a_status_is_its_code():
    """JSON and CSV hold the code; reading it gives the member back."""
    assert f"{Status.HUNG}" == "hung"
    assert Status("hung") is Status.HUNG


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_a_sentence(status):
    """Reports can say how a cell ended without knowing the code."""
    assert len(status.sentence.split()) >= 1
    assert status.ok == (status is Status.OK)


def test_what_is_not_needed_has_not_failed():
    """It counts neither as measured nor as failed; all others but OK have failed."""
    assert {status for status in Status if not status.failed} == {Status.OK, Status.NOT_NEEDED}
