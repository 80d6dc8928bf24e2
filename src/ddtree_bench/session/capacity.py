"""Whether a cell measured its server or the client."""

from __future__ import annotations

from typing import Final

from ddtree_bench.findings import FindingCode
from ddtree_bench.records import Finding

CPU_SHARE_LIMIT: Final = 0.7
"""CPU seconds of the client ÷ wall seconds. Its threads share one core, and near a whole one events
wait for it. Up to this share every request's speed was right within 1 %, above it none was tried
(benchmarks/LOG.md).
"""


def client_bound(cpu_share: float | None) -> tuple[Finding, ...]:
    """The finding that the client was too busy to keep time; () if it was not, or nobody knows."""
    if cpu_share is None or cpu_share <= CPU_SHARE_LIMIT:
        return ()
    detail = f"{cpu_share:.0%} of a core, {CPU_SHARE_LIMIT:.0%} are the limit"
    return (Finding(code=FindingCode.CLIENT_BOUND, detail=detail),)
