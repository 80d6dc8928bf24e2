"""Raw truth: what one request, one cell and one session left behind.

Records hold times and counts as they were seen; every other number is derived from them and can be
derived again. `None` means not measured, 0 means measured zero. Times of events are seconds after the
request was sent, by the client's monotonic clock.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt

from ddtree_bench.status import Status

Route = Literal["generate", "chat"]


class Record(BaseModel):
    """A frozen record that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Event(Record):
    """One message of the stream that carried tokens."""

    at_s: NonNegativeFloat
    tokens: NonNegativeInt
    """Completion tokens so far (cumulative), tokens past the stop token left out."""


class Sampling(Record):
    """Sampling parameters as sent; all are always sent, a server's defaults never decide."""

    max_new_tokens: Annotated[int, Field(ge=1)]
    temperature: NonNegativeFloat = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: int = -1
    seed: int | None = None
    ignore_eos: bool = False


class SpecCounts(Record):
    """Counters of speculative decoding for one request, from the server's `meta_info`."""

    verify_steps: NonNegativeInt
    accepted_drafts: NonNegativeInt
    proposed_drafts: NonNegativeInt | None = None
    histogram: tuple[NonNegativeInt, ...]
    """`histogram[i]` = verify steps that accepted i drafts."""


class TreeCounts(Record):
    """Tree truth of one request, summed over its verify steps."""

    verify_width: Annotated[int, Field(ge=1)]
    """Tokens verified in a step, root included."""
    nodes_by_depth: tuple[NonNegativeInt, ...] | None = None
    """`[d - 1]` = drafted nodes at depth d (the root has depth 0 and is not counted)."""
    accepted_by_depth: tuple[NonNegativeInt, ...] | None = None
    accepted_by_rank: tuple[NonNegativeInt, ...] | None = None
    """`[r]` = accepted nodes that were the drafter's choice number r at their depth; r = 0 is the chain's."""
    spine_nodes: NonNegativeInt | None = None
    """Nodes whose whole path is rank 0."""


class Check(Record):
    """Whether an answer is what its prompt asked for."""

    kind: str
    valid: bool
    detail: str = ""


class CellId(Record):
    """One measurement: a workload on one launch of a server."""

    server: str
    launch: Annotated[int, Field(ge=1)]
    workload: str
    concurrency: Annotated[int, Field(ge=1)]
    repeat: Annotated[int, Field(ge=1)]

    def __str__(self) -> str:
        return (
            f"{self.server}/launch-{self.launch}/{self.workload}/c{self.concurrency}/r{self.repeat}"
        )


class RequestRecord(Record):
    """One request as the client saw it."""

    kind: Literal["request"] = "request"
    cell: CellId
    prompt_id: str
    turn: NonNegativeInt
    """0 for the first request of a conversation or tool loop."""
    tags: dict[str, str] = {}
    prompt_sha256: str
    """Of the rendered prompt: its token ids (route generate) or its messages (route chat)."""
    route: Route
    stream: bool
    sampling: Sampling
    sent_unix_s: float
    wait_s: NonNegativeFloat = 0.0
    """From the time the request was due to the time it was sent (the client's own delay)."""
    events: tuple[Event, ...] = ()
    """Empty when nothing was streamed."""
    end_s: NonNegativeFloat
    """Last byte of the answer (or the failure)."""
    text: str = ""
    output_ids: tuple[int, ...] | None = None
    """Cut at the stop token, which is kept. None where the route gives no ids."""
    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    """As the server counts, less `overshoot_tokens`."""
    overshoot_tokens: NonNegativeInt = 0
    """Tokens that the server sent after a stop token; cut from ids, counts and times."""
    cached_tokens: NonNegativeInt | None = None
    finish_reason: str | None = None
    spec: SpecCounts | None = None
    tree: TreeCounts | None = None
    check: Check | None = None
    status: Status = Status.OK
    detail: str = ""


class CellRecord(Record):
    """How one cell ended; the first line of its file, before its requests."""

    kind: Literal["cell"] = "cell"
    key: str
    """Hash of everything that could change the cell's numbers."""
    protocol: int
    cell: CellId
    round: Annotated[int, Field(ge=1)]
    workload_class: str
    status: Status
    detail: str = ""
    started_unix_s: float
    ended_unix_s: float
    client_cpu_share: NonNegativeFloat | None = None
    """CPU seconds of the measuring process ÷ wall seconds."""


class Launch(Record):
    """One launch of a server: what was started, what answered, and on what machine."""

    kind: Literal["launch"] = "launch"
    protocol: int
    run: str
    server: str
    launch: int
    attempt: int
    status: Status
    detail: str = ""
    log_tail: str = ""
    log_path: str | None = None
    argv: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    """Variables set for the server; values of secrets are never kept."""
    started_unix_s: float
    ready_after_s: float | None = None
    ended_unix_s: float
    warmup_requests: int = 0
    identity: dict[str, Any] = {}
    """Facts read from the running server (`/server_info`), the ones that matter."""
    machine: dict[str, Any] = {}
    """CPU, kernel, GPUs, package versions, git commit, model hashes."""
