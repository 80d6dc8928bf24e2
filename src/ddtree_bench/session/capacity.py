"""Whether a cell measured its server under the load that it names, or the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ddtree_bench.findings import FindingCode
from ddtree_bench.metrics import in_flight
from ddtree_bench.records import CellId, Finding, RequestRecord

CPU_SHARE_LIMIT: Final = 0.7
"""CPU seconds of the client ÷ wall seconds. Its threads share one core, and near a whole one events
wait for it. Up to this share every request's speed was right within 1 %, above it none was tried
(benchmarks/LOG.md).
"""

FILLED_SHARE: Final = 0.75
"""Mean in flight ÷ concurrency. The last requests of a cell run with ever fewer beside them, also
where its prompts are enough (`config.FILLING`).
"""


def underfilled(cell: CellId, requests: Sequence[RequestRecord]) -> tuple[Finding, ...]:
    """The finding that a closed loop had far fewer in flight than its concurrency says.

    () if it had not, or nothing was sent. One in flight falls short only by the client's own time
    between two requests, which is in no request's time.
    """
    if cell.arrivals_per_s is not None or cell.concurrency == 1:
        return ()
    mean = in_flight(requests).mean
    if mean is None or mean >= FILLED_SHARE * cell.concurrency:
        return ()
    detail = f"{mean:.1f} of {cell.concurrency} on average, {FILLED_SHARE:.0%} are the limit"
    return (Finding(code=FindingCode.UNDERFILLED, detail=detail),)


def client_bound(cpu_share: float | None) -> tuple[Finding, ...]:
    """The finding that the client was too busy to keep time; () if it was not, or nobody knows."""
    if cpu_share is None or cpu_share <= CPU_SHARE_LIMIT:
        return ()
    detail = f"{cpu_share:.0%} of a core, {CPU_SHARE_LIMIT:.0%} are the limit"
    return (Finding(code=FindingCode.CLIENT_BOUND, detail=detail),)
