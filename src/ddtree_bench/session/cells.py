"""Which cells a session has, and under which key each is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtree_bench.config import Workload
from ddtree_bench.hashing import json_sha256
from ddtree_bench.records import CellId
from ddtree_bench.session.spec import SessionSpec

_PLACES = {"model": "model_sha256", "drafter": "drafter_sha256", "tokenizer": "tokenizer_sha256"}
"""Folders of a server and the fact that replaces each: a moved folder holds the same weights."""

_SERVER_LEFT_OUT = {"title", "startup_timeout_s", "python", "api_key_env"}
_WORKLOAD_LEFT_OUT = {
    "prompts", "replies", "history", "concurrency", "arrivals_per_s", "repeats", "rounds",
}  # fmt: skip
"""Hashes stand for files and for what conversations go on with; the rest is the cell's own name."""
_WORKLOAD_LATER = ("ignore_eos", "draws", "tool_route", "arrivals")
"""Keys that older cells did not have: at their default they are no part of a key."""
_PROTOCOL_KEPT = {"seed", "flush_cache", "warmup"}


def cells_of(spec: SessionSpec) -> tuple[CellId, ...]:
    """The cells of a session in the order of measuring: workload, load, repeat."""
    return tuple(
        CellId(
            server=spec.name,
            launch=spec.launch,
            workload=name,
            concurrency=concurrency,
            repeat=repeat,
            arrivals_per_s=rate,
        )
        for name, workload in spec.workloads.items()
        for concurrency, rate in workload.loads
        for repeat in range(1, workload.repeats + 1)
    )


def cell_key(spec: SessionSpec, cell: CellId, facts: Mapping[str, Any]) -> str:
    """Hash of everything that could change a cell's numbers, and of nothing else.

    Args:
        spec: the session that the cell belongs to.
        cell: one of `cells_of(spec)`.
        facts: decisive facts of the machine (`machine.decisive_facts`), and of a server that others
            started (`launch.facts_of_attached`).
    """
    workload = spec.workloads[cell.workload]
    unset = {
        name
        for name in _WORKLOAD_LATER
        if getattr(workload, name) == Workload.model_fields[name].default
    }
    replies = spec.replies_sha256.get(cell.workload)
    # a workload without conversations is the same whatever they would go on with
    history = {"history": "own"} if replies is None else {"history": "recorded", "replies": replies}
    asked = workload.model_dump(by_alias=True, exclude=_WORKLOAD_LEFT_OUT | unset)
    return json_sha256(
        {
            **_conditions(spec, facts),
            "workload": {**asked, **history, "sample": workload.sample_at(cell.concurrency)},
            "prompts_sha256": spec.prompts_sha256[cell.workload],
            "cell": cell.model_dump(exclude_none=True),
        }
    )


def launch_key(spec: SessionSpec, facts: Mapping[str, Any]) -> str:
    """Hash of what is launched and where, whatever it is asked; arguments as of `cell_key`."""
    return json_sha256({**_conditions(spec, facts), "name": spec.name, "launch": spec.launch})


def _conditions(spec: SessionSpec, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Server, machine and protocol, without what cannot change a number."""
    known = {place for place, fact in _PLACES.items() if facts.get(fact) is not None}
    idle = set() if spec.server.engine == "attach" else {"may_flush"}
    return {
        "protocol": spec.protocol_version,
        "server": spec.server.model_dump(exclude=_SERVER_LEFT_OUT | known | idle),
        "how": spec.protocol.model_dump(include=_PROTOCOL_KEPT),
        "facts": dict(facts),
    }
