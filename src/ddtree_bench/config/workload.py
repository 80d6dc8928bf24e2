"""What is asked of a server: the section `workloads`."""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from ddtree_bench.config.base import Section

CLASSES = ("short", "longform", "multiturn", "structured", "agentic")
"""The five workload classes; each weighs the same in the pooled figures."""

PromptFormat = Literal[
    "prompts",
    "speed-bench",
    "spec-bench",
    "sharegpt",
    "openai-chat",
    "mooncake",
    "gsm8k",
    "math-500",
]
FIXED_LENGTH = "fixed length"
"""Class under which answers of a fixed length are counted, apart from all others."""
DRAWN = "drawn"
"""Class of answers drawn many times: they tell of the sampler, and nothing of speed."""
FILLING: Final = 4
"""Conversations that a cell needs for each one in flight: the last ones run with fewer and fewer
beside them, and with one for each there are no others.
"""

WorkloadClass = Literal["short", "longform", "multiturn", "structured", "agentic", "original"]


class Workload(Section):
    """Prompts of one class and how they are sent."""

    workload_class: WorkloadClass = Field(
        alias="class",
        description="One of the five classes, or `original` (the three prompts of the original "
        "notes, measured by the notes' own formula and left out of pooled figures).",
    )
    prompts: str = Field(description="File of prompts, JSON Lines.")
    prompt_format: PromptFormat = Field(
        "prompts",
        alias="format",
        description="How the file is written: `prompts`, as this project's own, or as another "
        "benchmark's or log's file that you have (docs/workloads.md).",
    )
    sample: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        "all",
        description="Prompts drawn from the file, the same for every server. A cell with c > 1 in "
        "flight draws at least 4 c, as far as the file has them, the sample among them.",
    )
    max_new_tokens: Annotated[int, Field(ge=1)] = Field(
        96, description="Longest answer, tokens; for conversations: of each turn."
    )
    ignore_eos: bool = Field(
        False,
        description="Answers run on to `max_new_tokens`, past the end of their text, where tokens "
        "are easy to guess. An extra: it is shown as such and enters no pooled figure.",
    )
    temperature: Annotated[float, Field(ge=0)] = Field(0.0, description="0 decodes greedily.")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="Nucleus, always sent.")
    top_k: int = Field(-1, description="−1 keeps the whole vocabulary; always sent.")
    draws: Annotated[int, Field(ge=20)] | None = Field(
        None,
        description="Ask each prompt so many times, each with a seed of its own, and test whether "
        "servers draw from plain decoding's distribution (docs/method.md). Takes a `temperature`; "
        "short answers do. Such cells enter no other figure.",
    )
    route: Literal["generate", "chat"] = Field(
        "generate",
        description="`generate`: SGLang's native route, prompt rendered by the client, token ids "
        "and counters of every request. `chat`: the OpenAI route.",
    )
    stream: bool = Field(True, description="Stream the answer (times of every event).")
    concurrency: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (1,),
        min_length=1,
        description="Conversations in flight; a cell each. The file needs as many prompts, and "
        "four times as many to keep them in flight.",
    )
    arrivals_per_s: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (),
        description="Open loop: conversations arrive at these mean rates, a cell each, at times "
        "drawn by seed (Poisson), however many are in flight. They are counted apart, from the "
        "time a request was due. Default: closed loop with `concurrency`.",
    )
    arrivals: Literal["drawn", "recorded"] = Field(
        "drawn",
        description="Open loop: conversations arrive as `drawn` by seed, or in the rhythm that the "
        "prompts' tag `timestamp_s` has `recorded`, stretched to the mean rate.",
    )
    repeats: Annotated[int, Field(ge=1)] = Field(
        1, description="Passes over the prompts in each launch; a cell each."
    )
    rounds: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        None,
        description="Rounds that measure this workload; default: all. Workloads of one class have "
        "the same.",
    )
    history: Literal["own", "recorded"] | None = Field(
        None,
        description="What a conversation goes on with: `recorded` replies of the baseline, so that "
        "every server is asked the same in every turn and every turn is paired, or the server's "
        "`own`. Default: `recorded`; `own` with `tool_route: openai`.",
    )
    replies: tuple[str, ...] = Field(
        (),
        description="Files of replies that were recorded before (docs/workloads.md). Conversations "
        "that none of them holds are held once with the baseline, before the first round.",
    )
    thinking: bool | None = Field(
        None,
        description="Sent as `enable_thinking` to the chat template of models that think; "
        "default: as the template does by itself.",
    )
    constrained: bool = Field(
        False,
        description="Send a prompt's JSON schema for constrained decoding (not for `reference`).",
    )
    run_code: bool | Literal["unisolated"] = Field(
        False,
        description="Run answers that come with tests, in a process without network, files to "
        "write or much time; `unisolated`: also where the network cannot be taken away. "
        "false: they are only parsed.",
    )
    tool_route: Literal["text", "openai"] = Field(
        "text",
        description="How tool loops call: `text`, JSON in messages, for any model; `openai`, the "
        "server's own `tools` and tool parser, for models whose template knows tools (needs "
        "`route: chat`; not for `reference`).",
    )
    max_steps: Annotated[int, Field(ge=1)] = Field(
        4, description="Tool loops: most requests in one loop."
    )

    @property
    def counted_class(self) -> str:
        """The class under which its cells are counted."""
        if self.draws is not None:
            return DRAWN
        return FIXED_LENGTH if self.ignore_eos else self.workload_class

    @property
    def replays(self) -> bool:
        """Whether conversations go on with recorded replies, where there are any."""
        default = "own" if self.tool_route == "openai" else "recorded"
        return (self.history or default) == "recorded"

    @property
    def loads(self) -> tuple[tuple[int, float | None], ...]:
        """Concurrency and rate of arrivals of each cell of a repeat."""
        if self.arrivals_per_s:
            return tuple((1, rate) for rate in self.arrivals_per_s)
        return tuple((concurrency, None) for concurrency in self.concurrency)

    def sample_at(self, concurrency: int) -> int | Literal["all"]:
        """Prompts of a cell with so many in flight, as far as the file has them.

        A single one in flight is never without a next one until the end.
        """
        if self.sample == "all" or concurrency == 1:
            return self.sample
        return max(self.sample, math.ceil(FILLING * concurrency / (self.draws or 1)))

    @model_validator(mode="after")
    def _open_or_closed(self) -> Self:
        if self.arrivals_per_s and self.concurrency != (1,):
            raise ValueError("`arrivals_per_s` bounds no `concurrency`; use two workloads")
        if self.arrivals == "recorded" and not self.arrivals_per_s:
            raise ValueError("`arrivals: recorded` needs their mean rate, `arrivals_per_s`")
        return self

    @model_validator(mode="after")
    def _draws_are_comparable(self) -> Self:
        if self.draws is None:
            return self
        if self.temperature == 0:
            raise ValueError("`draws` of greedy answers are all the same: set a `temperature`")
        if self.route != "generate":
            raise ValueError("`draws` are compared by token ids, which route `chat` does not give")
        if self.workload_class == "original" or self.arrivals_per_s or self.ignore_eos:
            raise ValueError("`draws` are for a closed loop of one of the five classes")
        return self

    @model_validator(mode="after")
    def _original_ends_by_itself(self) -> Self:
        if self.ignore_eos and self.workload_class == "original":
            raise ValueError("class `original` is measured as its notes did: no `ignore_eos`")
        return self

    @model_validator(mode="after")
    def _tools_go_by_chat(self) -> Self:
        if self.tool_route == "openai" and (self.route != "chat" or self.replays):
            raise ValueError("`tool_route: openai` needs `route: chat` and `history: own`")
        return self

    @model_validator(mode="after")
    def _values_are_distinct(self) -> Self:
        for key in ("concurrency", "arrivals_per_s", "rounds"):
            values = getattr(self, key) or ()
            if len(set(values)) != len(values):
                raise ValueError(f"`{key}` names a value twice: {list(values)}")
        return self
