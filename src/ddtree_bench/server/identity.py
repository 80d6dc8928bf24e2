"""Whether the server that answers is the one that was configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ddtree_bench.config import Server
from ddtree_bench.errors import ServerError
from ddtree_bench.status import Status

Fact = str | int | float | bool | None

_PATHS = frozenset({"model_path", "speculative_draft_model_path"})
_IF_TOLD = frozenset(
    {
        "served_model_name",
        "speculative_accept_threshold_single",
        "speculative_accept_threshold_acc",
        "speculative_dflash_block_size",  # SGLang leaves it null and tells the width alone
    }
)
"""Facts that a server may leave out or null; told, they must hold."""

_KEPT = frozenset(
    {
        "engine",
        "version",
        "model_path",
        "served_model_name",
        "dtype",
        "quantization",
        "kv_cache_dtype",
        "device",
        "context_length",
        "random_seed",
        "tp_size",
        "dp_size",
        "threads",
        "torch_version",
        "transformers_version",
        "attention_backend",
        "sampling_backend",
        "mem_fraction_static",
        "max_running_requests",
        "max_total_num_tokens",
        "page_size",
        "chunked_prefill_size",
        "disable_overlap_schedule",
        "disable_radix_cache",
        "disable_cuda_graph",
    }
)
_KEPT_PREFIX = "speculative_"


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact of the configuration that the running server contradicts."""

    fact: str
    expected: Fact
    found: object

    def __str__(self) -> str:
        return f"{self.fact}: expected {self.expected!r}, found {self.found!r}"


def expected_facts(name: str, server: Server) -> dict[str, Fact]:
    """The facts of `/server_info` that follow from a configuration; its `expects` come last."""
    facts: dict[str, Fact] = {
        "model_path": server.model,
        "speculative_algorithm": None if server.algorithm == "AR" else server.algorithm,
    }
    if server.engine != "attach":
        facts["served_model_name"] = name
    if server.algorithm != "AR":
        facts |= {
            "speculative_draft_model_path": server.drafter,
            "speculative_num_draft_tokens": server.verify_width,
            "speculative_dflash_block_size": server.block_size,
            "speculative_ddtree_budget": server.budget,
            "speculative_ddtree_topk_cap": server.topk_cap,
            # below 1 the server would accept drafts that the target does not sample
            "speculative_accept_threshold_single": 1.0,
            "speculative_accept_threshold_acc": 1.0,
        }
        # what the configuration leaves open, the engine decides
        facts = {key: value for key, value in facts.items() if value is not None}
    return {**facts, **server.expects}


def differences(
    expected: Mapping[str, Fact], server_info: Mapping[str, Any], *, far: bool = False
) -> tuple[Difference, ...]:
    """The expected facts that do not hold.

    Args:
        expected: from `expected_facts`.
        server_info: the body of `/server_info`; a fact that is not in it counts as null.
        far: the server may run on another machine: of paths the last part is compared.
    """
    return tuple(
        Difference(fact, value, server_info.get(fact))
        for fact, value in expected.items()
        if not _holds(fact, value, server_info.get(fact), far)
    )


def check_identity(name: str, server: Server, server_info: Mapping[str, Any]) -> None:
    """Raise ServerError(WRONG_SERVER), naming every fact that differs."""
    wrong = differences(expected_facts(name, server), server_info, far=server.engine == "attach")
    if wrong:
        raise ServerError(
            Status.WRONG_SERVER,
            "; ".join(map(str, wrong)),
            where=f"/server_info of server {name}",
            remedy="correct the configuration, or start the server that it describes",
        )


def kept_facts(server: Server, server_info: Mapping[str, Any]) -> dict[str, Any]:
    """The facts worth recording with a launch: settings that change speed, and those expected."""
    return {
        key: value
        for key, value in server_info.items()
        if key in _KEPT or key in server.expects or key.startswith(_KEPT_PREFIX)
    }


def _holds(fact: str, expected: Fact, found: object, far: bool) -> bool:
    if fact in _IF_TOLD and found is None:
        return True
    if fact in _PATHS and isinstance(expected, str) and isinstance(found, str):
        if far:
            return PurePosixPath(expected).name == PurePosixPath(found).name
        return Path(expected).resolve() == Path(found).resolve()
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found  # 1 is not true
    return expected == found
