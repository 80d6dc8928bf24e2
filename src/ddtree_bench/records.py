"""Raw truth: what one request, one cell and one session left behind.

Records hold times and counts as they were seen; every other number is derived from them and can be
derived again. `None` means not measured, 0 means measured zero. Times of events are seconds after
the request was sent, by the client's monotonic clock.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
)

from ddtree_bench.findings import FindingCode
from ddtree_bench.status import Status

Route = Literal["generate", "chat"]
Question = tuple[str, str, int, str]
"""Workload, prompt id, turn and hash of the rendered prompt."""


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
    json_schema: dict[str, Any] | None = None
    """Constrains decoding to JSON that it accepts."""


class SpecCounts(Record):
    """Counters of speculative decoding for one request, from the server's `meta_info`."""

    verify_steps: NonNegativeInt
    accepted_drafts: NonNegativeInt
    proposed_drafts: NonNegativeInt | None = None
    histogram: tuple[NonNegativeInt, ...]
    """`histogram[i]` = verify steps that accepted i drafts."""
    drafting_s: NonNegativeFloat | None = None
    """Seconds of the verify steps that were drafting, by the engine's own clock."""


class TreeCounts(Record):
    """Tree truth of one request, summed over its verify steps."""

    verify_width: Annotated[int, Field(ge=1)]
    """Tokens verified in a step, root included."""
    nodes_by_depth: tuple[NonNegativeInt, ...] | None = None
    """`[d - 1]` = drafted nodes at depth d (the root has depth 0 and is not counted)."""
    accepted_by_depth: tuple[NonNegativeInt, ...] | None = None
    accepted_by_rank: tuple[NonNegativeInt, ...] | None = None
    """`[r]` = accepted nodes that were the drafter's choice number r at their depth.

    r = 0 is what a chain would have drafted.
    """
    accepted_by_node: tuple[NonNegativeInt, ...] | None = None
    """`[n - 1]` = accepted nodes that were node n in the order in which the tree grew."""
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
    """Requests in flight; 1 in an open loop, where nothing bounds them."""
    repeat: Annotated[int, Field(ge=1)]
    arrivals_per_s: PositiveFloat | None = None
    """Open loop: conversations that arrive in a second, on average. None: closed loop."""

    def __str__(self) -> str:
        rate = self.arrivals_per_s
        load = f"c{self.concurrency}" if rate is None else f"a{rate:g}"
        return f"{self.server}/launch-{self.launch}/{self.workload}/{load}/r{self.repeat}"


class ToolCall(Record):
    """A tool call that the server parsed out of an answer."""

    id: str | None = None
    name: str
    arguments: str
    """As the server sends them: JSON, or what it took for it."""


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
    tool_calls: tuple[ToolCall, ...] = ()
    """Only where the request offered `tools`; the text is then what is left beside them."""
    output_ids: tuple[int, ...] | None = None
    """Cut at the stop token, which is kept. None where the route gives no ids."""
    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    """As the server counts, less `overshoot_tokens`."""
    overshoot_tokens: NonNegativeInt = 0
    """Tokens that the server sent after a stop token; cut from ids, counts and times."""
    cached_tokens: NonNegativeInt | None = None
    retractions: NonNegativeInt | None = None
    """Times the server took the request out of its batch for want of memory and read it again."""
    finish_reason: str | None = None
    spec: SpecCounts | None = None
    tree: TreeCounts | None = None
    check: Check | None = None
    status: Status = Status.OK
    detail: str = ""

    @property
    def question(self) -> Question:
        """What was asked; its repeats and launches ask the same."""
        return self.cell.workload, self.prompt_id, self.turn, self.prompt_sha256


class Finding(Record):
    """Something noticed that may have changed a speed; it marks a cell or launch, drops nothing."""

    code: FindingCode
    count: Annotated[int, Field(ge=1)] = 1
    """How often it was noticed."""
    detail: str = ""
    """The first occurrence: a line of the log, a process, a share."""


class Spread(Record):
    """Smallest, mean and largest of some samples."""

    low: float
    mean: float
    high: float


class HostLoad(Record):
    """The host's CPUs while a cell was measured, by samples of about a second."""

    samples: Annotated[int, Field(ge=1)]
    busy_share: Spread
    """Of all CPUs together, 0 to 1."""
    foreign_share: Spread
    """The part of `busy_share` that processes other than client and server took."""
    load_1m: Spread


class GpuLoad(Record):
    """One GPU while a cell was measured; a reading that the device does not give is None."""

    gpu: str
    """Its UUID."""
    samples: Annotated[int, Field(ge=1)]
    sm_clock_mhz: Spread | None = None
    memory_clock_mhz: Spread | None = None
    power_w: Spread | None = None
    temperature_c: Spread | None = None
    memory_used_bytes: Spread | None = None
    utilisation: Spread | None = None
    energy_j: NonNegativeFloat | None = None
    throttle_reasons: tuple[str, ...] | None = None
    throttled_share: float | None = None
    foreign_share: float | None = None
    """Share of the samples in which a process of others was on the GPU."""
    foreign_memory_bytes: Spread | None = None
    foreign_utilisation: Spread | None = None


class StartupPhase(Record):
    """One step of a server's start, as its log tells it."""

    name: str
    elapsed_s: NonNegativeFloat | None = None
    """None: it did not end."""
    used_gib: float | None = None
    tokens_per_request: NonNegativeInt | None = None
    """Graph captures: tokens of each request; of the target's verify graph: the verify width."""
    batch_sizes: tuple[int, ...] = ()


class Startup(Record):
    """What a server's log tells of its start."""

    phases: tuple[StartupPhase, ...] = ()
    parts_s: dict[str, float] = {}
    """The server's own summary, seconds by part."""
    kv_pool_tokens: NonNegativeInt | None = None
    """Of the target; the drafter's own pool is not counted."""
    kv_pool_gib: NonNegativeFloat | None = None
    max_running_requests: NonNegativeInt | None = None
    free_gib: float | None = None
    """GPU memory left when all was allocated."""
    verify_width: NonNegativeInt | None = None
    """Tokens verified in a step by the captured graph; None where none was captured."""


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
    client_lag_s: NonNegativeFloat | None = None
    """How late a thread of the client was that did nothing but wake up; 99 % were not later."""
    host: HostLoad | None = None
    """None: an attached server (its processes are not known), or a cell shorter than a sample."""
    gpus: tuple[GpuLoad, ...] = ()
    """Empty: no GPU, no NVML, or a cell shorter than a sample."""
    findings: tuple[Finding, ...] = ()
    """What happened during the cell that may have changed its speed."""


class Failure(Record):
    """What did not end well in one attempt of a launch: the launch, a cell or a request."""

    level: Literal["launch", "cell", "request"]
    attempt: Annotated[int, Field(ge=1)]
    cell: CellId | None = None
    prompt_id: str | None = None
    turn: NonNegativeInt | None = None
    status: Status
    detail: str = ""
    log_tail: str = ""
    """The end of the server's log; launches only."""


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
    logprob_requests: NonNegativeInt = 0
    """Asked once more after the last cell, for log probabilities; they are in no other number."""
    logprob_s: NonNegativeFloat | None = None
    """Seconds of those requests; None: none was made."""
    identity: dict[str, Any] = {}
    """Facts read from the running server (`/server_info`), the ones that matter."""
    machine: dict[str, Any] = {}
    """CPU, kernel, GPUs, package versions, git commit, hashes of models and prompt files."""
    startup: Startup | None = None
    """None: no log of ours (attached), or the server was never started."""
    findings: tuple[Finding, ...] = ()
    """What was noticed from start to end, cells included."""
    earlier_failures: tuple[Failure, ...] = ()
    """Of attempts before this one; what failed stays told when a later attempt makes it good."""
