"""What is to be said about the replies that a session's conversations go on with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ddtree_bench.findings import FindingCode
from ddtree_bench.prompts import conversations
from ddtree_bench.records import Finding
from ddtree_bench.replies import read_replies
from ddtree_bench.session.spec import SessionSpec


def history_findings(spec: SessionSpec, model_sha256: str | None) -> Iterator[Finding]:
    """Conversations without recorded replies, and replies that another model has given.

    `model_sha256`: of the server's own weights; None where they are not known.
    """
    for name, workload in spec.workloads.items():
        if not workload.replays:
            continue
        talks = conversations(workload, spec.protocol.seed)
        lacking = [prompt.id for prompt in talks if not prompt.replies]
        if lacking:
            detail = f"{name}: {len(lacking)} of {len(talks)}, the first {lacking[0]}"
            yield Finding(code=FindingCode.OWN_HISTORY, count=len(lacking), detail=detail)
        known = read_replies(map(Path, workload.replies))
        givers = [known[p.questions_sha256] for p in talks if p.questions_sha256 in known]
        others = [each for each in givers if each.model_sha256 not in (model_sha256, None)]
        if others and model_sha256 is not None:
            detail = f"{name}: {len(others)} of {len(talks)}, the first {others[0].prompt_id}"
            yield Finding(code=FindingCode.FOREIGN_HISTORY, count=len(others), detail=detail)
