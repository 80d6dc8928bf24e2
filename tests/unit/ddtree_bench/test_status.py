from ddtree_bench.status import Status


def test_only_what_was_measured_is_ok():
    """Everything else is shown as what went wrong, or as not needed."""
    assert [status for status in Status if status.ok] == [Status.OK]


def test_what_is_not_needed_has_not_failed():
    """It counts neither as measured nor as failed; all others but OK have failed."""
    assert {status for status in Status if not status.failed} == {Status.OK, Status.NOT_NEEDED}
