"""The `ddtree_*` fields of `meta_info`: sums over a request's verify steps.

The counts of a step reach the host with its tokens. The scheduler adds them up for each request in
the list that SGLang keeps for DSPARK's caps, which is empty for every other algorithm and is
already carried to the process that answers; there they become fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Protocol, cast

from ddtree_sglang.options import TreeOptions
from ddtree_sglang.stock import JsonObject, Request

_CARRIER: Final = "spec_cap_lens_histogram"
TRACE_KEY: Final = "ddtree_trace"


class Listable(Protocol):
    """A tensor on the host, `[R, …]`."""

    def tolist(self) -> list[list[int]]:
        """Its rows."""


class CountedResult(Protocol):
    """A step's result with its trees' counts; both are None where there were no trees."""

    tree_counts: Listable | None
    tree_trace: Sequence[Listable] | None


def add_step(request: Request, counts: Sequence[int]) -> None:
    """Add one verify step's counts to those that a request carries."""
    carried = request.spec_cap_lens_histogram or [0] * len(counts)
    request.spec_cap_lens_histogram = [a + b for a, b in zip(carried, counts, strict=True)]


def count_steps(
    predicted: Sequence[Sequence[int]], requests: Sequence[Request], result: CountedResult
) -> None:
    """Count the step of each request that SGLang counts too: neither finished nor retracted.

    `predicted`: the tokens that each request got.
    """
    if result.tree_counts is None:
        return
    counts = result.tree_counts.tolist()
    traced = [part.tolist() for part in result.tree_trace or ()]
    for place, request in enumerate(requests):
        if request.is_retracted or request.finished():
            continue
        add_step(request, counts[place])
        if traced:
            add_trace(request, [part[place] for part in traced], len(predicted[place]))


def add_trace(request: Request, step: Sequence[list[int]], tokens: int) -> None:
    """Put a step's tree beside the first of its tokens; SGLang carries one entry a token."""
    if request.customized_info is None:
        request.customized_info = {}
    entries = request.customized_info.setdefault(TRACE_KEY, [])
    entries.extend([None] * (len(request.output_ids) - len(entries)))
    entries.append(_trace_entry(*step))
    entries.extend([None] * (tokens - 1))


def _trace_entry(
    ids: list[int], parents: list[int], scores: Sequence[float], path: list[int]
) -> JsonObject:
    """The used nodes of one tree, and the accepted path with its root."""
    used = [node for node, parent in enumerate(parents) if node == 0 or parent >= 0]
    return {
        "tokens": [ids[node] for node in used],
        "parents": [parents[node] for node in used],
        "log_probs": [scores[node] for node in used],
        "path": [0, *(node for node in path if node >= 0)],
    }


def tree_fields(meta_info: JsonObject, options: TreeOptions) -> JsonObject:
    """Turn what a finished request carried into fields; takes the carrier out of `meta_info`.

    `ddtree_nodes_by_depth[d]` and `ddtree_accepted_by_depth[d]` stand for depth d + 1,
    `ddtree_accepted_by_rank[r]` for the drafter's candidate r; lists end at their last count.
    A request without a verify step has the width alone.
    """
    carried = cast("list[int] | None", meta_info.pop(_CARRIER, None))
    fields: JsonObject = {"ddtree_verify_width": options.width}
    if not carried:
        return fields
    nodes, spine, by_rank = (
        carried[: -options.topk - 1],
        carried[-options.topk - 1],
        carried[-options.topk :],
    )
    histogram = cast("list[int]", meta_info["spec_correct_drafts_histogram"])
    # Steps that accepted d drafts or more, for d = 1, 2, …
    by_depth = list(accumulate(reversed(histogram[1:])))[::-1]
    return fields | {
        "ddtree_nodes_by_depth": _trimmed(nodes),
        "ddtree_accepted_by_depth": by_depth,
        "ddtree_accepted_by_rank": _trimmed(by_rank),
        "ddtree_spine_nodes": spine,
    }


def _trimmed(counts: Sequence[int]) -> list[int]:
    """The counts up to the last that is not 0."""
    last = max((place for place, count in enumerate(counts) if count != 0), default=-1)
    return list(counts[: last + 1])
