"""Whether the server that answers is the one that was configured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

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
        "disable_decode_cuda_graph",
        "disable_prefill_cuda_graph",
        "decode_attention_backend",
        "prefill_attention_backend",
        "cuda_graph_bs",
        "cuda_graph_max_bs",
        "cuda_graph_bs_decode",
        "cuda_graph_max_bs_decode",
        "cuda_graph_config.decode.backend",
        "cuda_graph_config.decode.bs",
        "cuda_graph_config.prefill.backend",
        "schedule_policy",
    }
)
_KEPT_PREFIX = "speculative_"
_SIMULATED = re.compile("simulat", re.IGNORECASE)
_OFF = (None, False, 0, "", -1)


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
        Difference(fact, value, found)
        for fact, value in expected.items()
        if not _holds(fact, value, found := fact_of(server_info, fact), far)
    )


def simulated(server_info: Mapping[str, Any]) -> Iterator[Difference]:
    """Facts by which a server says that it invents results, such as an acceptance length."""
    for fact, value in server_info.items():
        if _SIMULATED.search(fact) and value not in _OFF:
            yield Difference(fact, None, value)


def fact_of(server_info: Mapping[str, Any], name: str) -> object:
    """The fact of this name, dots reaching into nested ones; None if there is none.

    >>> fact_of({"states": [{"bs": 4}]}, "states.0.bs")
    4
    """
    if name in server_info:
        return server_info[name]
    found: Any = server_info
    for part in name.split("."):
        if isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, Sequence) and not isinstance(found, str) and part.isdigit():
            found = found[int(part)] if int(part) < len(found) else None
        else:
            return None
    return cast("object", found)


def check_identity(name: str, server: Server, server_info: Mapping[str, Any]) -> None:
    """Raise ServerError(WRONG_SERVER), naming every fact that differs."""
    far = server.engine == "attach"
    wrong = (
        *differences(expected_facts(name, server), server_info, far=far),
        *simulated(server_info),
    )
    if wrong:
        raise ServerError(
            Status.WRONG_SERVER,
            "; ".join(map(str, wrong)),
            where=f"/server_info of server {name}",
            remedy="correct the configuration, or start the server that it describes",
        )


def check_verify_width(name: str, server: Server, told: object, captured: int | None) -> None:
    """Raise ServerError(WRONG_SERVER) if the captured graph verifies another number of tokens.

    Args:
        name: key of the server.
        server: its configuration; where that leaves the width open, `told` stands for it.
        told: `speculative_num_draft_tokens` of `/server_info`.
        captured: tokens a request in the target's verify graph, from the log; None without graph.
    """
    expected = told if server.verify_width is None else server.verify_width
    if captured is None or expected is None or expected == captured:
        return
    raise ServerError(
        Status.WRONG_SERVER,
        f"num_tokens_per_req of the captured graph: expected {expected!r}, found {captured!r}",
        where=f"log of server {name}",
        remedy="see whether a flag, a plug-in or the drafter's own configuration overrides it",
    )


def kept_facts(server: Server, server_info: Mapping[str, Any]) -> dict[str, Any]:
    """The facts worth recording with a launch: settings that change speed, and those expected."""
    names = {name for name in server_info if name.startswith(_KEPT_PREFIX)}
    names |= {name for name in _KEPT if "." not in name and name in server_info}
    names |= server.expects.keys() & server_info.keys()
    nested = {name for name in {*_KEPT, *server.expects} if "." in name}
    names |= {name for name in nested if fact_of(server_info, name) is not None}
    return {name: fact_of(server_info, name) for name in sorted(names)}


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
