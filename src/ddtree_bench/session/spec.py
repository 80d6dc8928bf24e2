"""What one session measures, as a file: the only thing that a GPU node needs besides the code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from ddtree_bench import PROTOCOL
from ddtree_bench.config import Config, Protocol, Server, Workload
from ddtree_bench.config.base import Section
from ddtree_bench.hashing import file_sha256, json_sha256
from ddtree_bench.prompts import conversations

NOT_MEASURED = {"title"}
"""Keys of a server that cannot change its numbers; a new title measures nothing again."""


class SessionSpec(Section):
    """One launch of one server and the workloads it is asked, fully resolved."""

    protocol_version: int = PROTOCOL
    run: str
    name: str
    server: Server
    launch: Annotated[int, Field(ge=1)]
    workloads: dict[str, Workload]
    prompts_sha256: dict[str, str]
    """Of each workload's prompt file, so that edited prompts are measured again."""
    replies_sha256: dict[str, str] = Field(default_factory=dict)
    """Of the replies that each workload's conversations go on with; only where they do."""
    protocol: Protocol
    needed_by: Config | None = None
    """The run whose intervals tell whether this round is needed; None: it is in any case."""
    logprobs_of: tuple[str, ...] = ()
    """Workloads whose greedy prompts are asked once more for log probabilities."""

    @classmethod
    def of(cls, config: Config, name: str, launch: int) -> Self:
        """The session of a server's launch, with those workloads that its round measures.

        Raises ConfigError if prompts are faulty, or too few for what is in flight.
        """
        workloads = {
            key: workload
            for key, workload in config.workloads.items()
            if workload.rounds is None or launch in workload.rounds
        }
        return cls(
            run=config.run,
            name=name,
            server=config.servers[name].model_copy(update=dict.fromkeys(NOT_MEASURED)),
            launch=launch,
            workloads=workloads,
            prompts_sha256={
                key: file_sha256(Path(workload.prompts)) for key, workload in workloads.items()
            },
            replies_sha256=_replies_sha256(workloads, config.protocol.seed),
            protocol=config.protocol,
            needed_by=_untitled(config) if launch > config.protocol.launches else None,
            logprobs_of=_first_asked(workloads, launch) if _records(config, name) else (),
        )

    def with_replies(self, recorded: Path) -> Self:
        """The spec, its conversations going on with the replies of this file, if it is there.

        Files of replies that the configuration names go before it.

        Raises ConfigError if a file is faulty.
        """
        more = (str(recorded),) if recorded.exists() else ()
        workloads = {
            name: workload.model_copy(update={"replies": (*workload.replies, *more)})
            for name, workload in self.workloads.items()
        }
        hashes = _replies_sha256(workloads, self.protocol.seed)
        return self.model_copy(update={"workloads": workloads, "replies_sha256": hashes})

    @property
    def flushes_cache(self) -> bool:
        """Whether the prefix cache is emptied before each cell; never without leave elsewhere."""
        ours = self.server.engine != "attach" or self.server.may_flush
        return self.protocol.flush_cache and ours

    def to_json(self) -> str:
        """The spec as JSON text; equal specs give equal text."""
        return self.model_dump_json(by_alias=True, indent=1) + "\n"


def _replies_sha256(workloads: Mapping[str, Workload], seed: int) -> dict[str, str]:
    """Hashes by workload, of those that replay conversations."""
    # of all workloads: a fault of their prompts is told before anything starts
    held = {name: conversations(workload, seed) for name, workload in workloads.items()}
    return {
        name: json_sha256({prompt.id: prompt.replies for prompt in talks})
        for name, talks in held.items()
        if talks and workloads[name].replays
    }


def _untitled(config: Config) -> Config:
    """The configuration without what is only shown."""
    servers = {
        name: server.model_copy(update=dict.fromkeys(NOT_MEASURED))
        for name, server in config.servers.items()
    }
    return config.model_copy(update={"title": "", "servers": servers})


def _records(config: Config, name: str) -> bool:
    """Whether a server is asked for log probabilities: the one that others are compared with."""
    return config.protocol.logprobs and name == config.analysis.baseline


def _first_asked(workloads: Mapping[str, Workload], launch: int) -> tuple[str, ...]:
    """Workloads that this round measures first: their answers there are the reference."""
    return tuple(
        name
        for name, workload in workloads.items()
        if launch == min(workload.rounds or (1,))
        and workload.route == "generate"
        and workload.temperature == 0
        and not workload.ignore_eos
    )
