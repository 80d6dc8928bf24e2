"""How measuring is done (`protocol`) and how it is judged (`analysis`)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ddtree_bench.config.base import Section, fault_at


class Warmup(Section):
    """Requests before the measurement; their numbers are thrown away.

    They are made for the smallest and the largest concurrency of the session's workloads, after one
    request as long as the longest prompt.
    """

    min_requests: Annotated[int, Field(ge=1)] = Field(
        2, description="At least so many one after the other; with c in flight, so many times c."
    )
    max_requests: Annotated[int, Field(ge=1)] = Field(
        8, description="At most so many one after the other; reaching it unsteady is recorded."
    )
    tolerance: Annotated[float, Field(gt=0)] = Field(
        0.1,
        description="Steady when seconds per token differ from the time before by less, relative, "
        "and the server's log told of no compilation or capture since.",
    )
    max_new_tokens: Annotated[int, Field(ge=8)] = Field(
        32, description="Length of a warm-up answer, tokens."
    )


class Adaptive(Section):
    """Further rounds, as long as intervals are wide. What an interval says never decides.

    The rounds that decide are followed by one more, so that three are measured at least.
    """

    max_launches: Annotated[int, Field(ge=2)] = Field(description="Rounds at most.")
    width: Annotated[float, Field(gt=0)] = Field(
        description="Enough when every server's interval of the pooled speed-up over the baseline, "
        "at each concurrency, is at most so wide, relative to the speed-up."
    )


class Protocol(Section):
    """How every server is measured."""

    launches: Annotated[int, Field(ge=1)] = Field(
        2, description="Times each server is launched, once a round; every second round mirrored."
    )
    adaptive: Adaptive | None = Field(
        None, description="Rounds beyond `launches`, only as many as needed; default: none."
    )
    seed: int = Field(0, description="Orders the prompts of each repeat and seeds sampling.")
    attempts: Annotated[int, Field(ge=1)] = Field(
        2, description="Tries of a launch before its failure is recorded."
    )
    request_timeout_s: Annotated[float, Field(gt=0)] = Field(
        120.0, description="Longest silence of a server within a request."
    )
    flush_cache: bool = Field(
        True, description="Flush the prefix cache before every cell and check that it was cold."
    )
    logprobs: bool = Field(
        True,
        description="After the last cell of a workload's first round, ask the baseline its greedy "
        "prompts once more, untimed, for log probabilities; they tell a near tie from a fault.",
    )
    warmup: Warmup = Field(Warmup(), description="Requests before the measurement.")

    @property
    def rounds(self) -> int:
        """Rounds at most."""
        return self.launches if self.adaptive is None else self.adaptive.max_launches

    @model_validator(mode="after")
    def _adaptive_adds_rounds(self) -> Self:
        if self.adaptive is not None and self.adaptive.max_launches <= self.launches:
            raise fault_at(
                ("adaptive", "max_launches"),
                f"{self.adaptive.max_launches} adds no round to `launches: {self.launches}`",
            )
        return self


class Limits(Section):
    """What a user puts up with; an unset limit is none."""

    ttft_s: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Longest time to the first token, seconds."
    )
    tpot_s: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Longest time per token after it, seconds."
    )
    end_s: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Longest time to the end of the answer, seconds."
    )

    @property
    def stated(self) -> dict[str, float]:
        """The limits that are set, by the name of what they limit."""
        limits: dict[str, float] = self.model_dump(exclude_none=True)
        return limits


class Analysis(Section):
    """How numbers become verdicts; a change here measures nothing again."""

    baseline: str = Field("ar", description="Server of plain decoding that all are compared with.")
    against: dict[str, tuple[str, ...]] = Field(
        {},
        description="Planned opponents: a server's list takes the place of its automatic ones "
        "(the baseline; of a tree, also every chain of its model). Only planned comparisons are "
        "tested and enter the correction for many; a server that plans others is still shown "
        "beside the baseline, untested.",
    )
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        0.95, description="Level of the intervals."
    )
    margin: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.02, description="Smallest relative difference worth acting on."
    )
    near_tie_nats: Annotated[float, Field(gt=0)] = Field(
        0.1,
        description="Largest regret of a first difference that rounding may cause, nats; "
        "about what bf16 resolves in a logit of 20. What the baseline regrets against itself "
        "widens it.",
    )
    limits: Limits = Field(
        Limits(), description="Limits of goodput: requests that keep them all count."
    )
