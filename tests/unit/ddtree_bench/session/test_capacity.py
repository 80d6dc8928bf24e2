"""When a cell is said to have measured the client."""

from ddtree_bench.findings import FindingCode
from ddtree_bench.session.capacity import CPU_SHARE_LIMIT, client_bound


def test_a_busy_client_marks_its_cell():
    """Above the limit, the finding says how much and what is allowed."""
    (finding,) = client_bound(0.93)
    assert finding.code is FindingCode.CLIENT_BOUND
    assert finding.detail == "93% of a core, 70% are the limit"


def test_a_client_with_time_to_spare_is_no_finding():
    """At the limit and below nothing is said, and nothing where the share is not known."""
    assert client_bound(CPU_SHARE_LIMIT) == client_bound(0.0) == client_bound(None) == ()
