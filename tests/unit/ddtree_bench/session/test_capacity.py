"""When a cell is said to have measured the client, or less load than its name says."""

from fakes import cell_id, request_record

from ddtree_bench.findings import FindingCode
from ddtree_bench.session.capacity import CPU_SHARE_LIMIT, client_bound, underfilled


def test_a_busy_client_marks_its_cell():
    """Above the limit, the finding says how much and what is allowed."""
    (finding,) = client_bound(0.93)
    assert finding.code is FindingCode.CLIENT_BOUND
    assert finding.detail == "93% of a core, 70% are the limit"


def test_a_client_with_time_to_spare_is_no_finding():
    """At the limit and below nothing is said, and nothing where the share is not known."""
    assert client_bound(CPU_SHARE_LIMIT) == client_bound(0.0) == client_bound(None) == ()


def in_flight(concurrency, *spans, **changes):
    """What is said of a cell whose requests were in flight from and to these seconds."""
    cell = cell_id(concurrency=concurrency, **changes)
    requests = [request_record(cell=cell, sent_unix_s=at, end_s=to - at) for at, to in spans]
    return underfilled(cell, requests)


def test_a_cell_with_too_few_in_flight_is_marked():
    """Two requests of 1 and 2 s: 1.5 in flight on average, of four."""
    (finding,) = in_flight(4, (0, 1), (0, 2))
    assert finding.code is FindingCode.UNDERFILLED
    assert finding.detail == "1.5 of 4 on average, 75% are the limit"


def test_a_filled_cell_is_not_marked():
    """1.5 of two is the limit; the tail of a cell need not be full."""
    assert in_flight(2, (0, 1), (0, 2)) == ()


def test_load_falls_short_only_of_what_was_asked_for():
    """One in flight, an open loop and a cell without requests ask for none."""
    assert in_flight(1, (0, 1), (9, 10)) == ()
    assert in_flight(1, (0, 1), (9, 10), arrivals_per_s=4.0) == ()
    assert in_flight(4) == ()
