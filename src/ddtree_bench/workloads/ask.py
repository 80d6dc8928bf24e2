"""One request of a cell, from messages to its record."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.client.answers import cut_at_stop
from ddtree_bench.client.client import ChatMessage, Client, Exchange
from ddtree_bench.config import Workload
from ddtree_bench.hashing import json_sha256
from ddtree_bench.prompts import JsonSchemaCheck, Prompt
from ddtree_bench.records import CellId, RequestRecord, Sampling

SEED_BITS = 31


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class CellTask:
    """What one cell asks."""

    cell: CellId
    workload: Workload
    prompts: tuple[Prompt, ...]
    seed: int
    should_stop: Callable[[], bool] = _never
    """Asked before each request; True ends the cell with what it has."""


@dataclass(slots=True)
class Asker:
    """Sends the requests of one conversation and keeps their records."""

    client: Client
    tokenizer: PromptTokenizer
    task: CellTask
    prompt: Prompt
    draw: int = 0
    """Which of the workload's `draws` this is, from 0."""
    records: list[RequestRecord] = field(default_factory=list)
    due_s: float = field(default_factory=time.monotonic)
    """When the next request is due, by the monotonic clock: at once, or as it arrives."""

    def opening(self) -> list[ChatMessage]:
        """The messages before the user speaks."""
        system = self.prompt.system
        return [] if system is None else [{"role": "system", "content": system}]

    def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()
    ) -> RequestRecord:
        """Send the conversation; the record says what came back, also after a failure.

        `tools` go by the chat route only.
        """
        workload = self.task.workload
        sampling = self._sampling()
        if workload.route == "generate":
            ids = self.render(messages)
            prompt_sha256 = json_sha256(list(ids))
            exchange = self.client.generate(ids, sampling, stream=workload.stream)
        else:
            told = self.tokenizer.defused(messages)
            prompt_sha256 = json_sha256([*told, *tools])
            exchange = self.client.chat(
                told, sampling, stream=workload.stream, template=self._template(), tools=tools
            )
        record = self._record(exchange, sampling, prompt_sha256)
        self.due_s = exchange.sent_monotonic_s + exchange.end_s
        self.records.append(record)
        return record

    def render(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Token ids of the conversation, and of the answer's start where the prompt has one."""
        return self.tokenizer.render(messages, self._template(), self.prompt.answer_start)

    def reply_to_go_on_with(self, record: RequestRecord) -> str:
        """What the assistant is taken to have said: the record's text, or the recorded reply."""
        if not self.task.workload.replays:
            return record.text
        replies = self.prompt.replies
        return replies[record.turn] if record.turn < len(replies) else record.text

    def replace_last(self, record: RequestRecord) -> None:
        """Put a record with its check in the place of the last one."""
        self.records[-1] = record

    def _sampling(self) -> Sampling:
        workload = self.task.workload
        return Sampling(
            max_new_tokens=workload.max_new_tokens,
            temperature=workload.temperature,
            top_p=workload.top_p,
            top_k=workload.top_k,
            seed=None if workload.temperature == 0 else self._seed(),
            ignore_eos=workload.ignore_eos,
            json_schema=self._schema() if workload.constrained else None,
        )

    def _schema(self) -> dict[str, Any] | None:
        """What constrains this answer: the schema of the prompt's check, in the last turn."""
        check = self.prompt.check
        last = len(self.records) == len(self.prompt.turns) - 1
        return check.json_schema if last and isinstance(check, JsonSchemaCheck) else None

    def _template(self) -> dict[str, object]:
        """Options for the model's chat template."""
        thinking = self.task.workload.thinking
        return {} if thinking is None else {"enable_thinking": thinking}

    def _tags(self) -> dict[str, str]:
        thinking = self.task.workload.thinking
        told = {} if thinking is None else {"thinking": "on" if thinking else "off"}
        return {**self.prompt.tags, **told}

    def _seed(self) -> int:
        """A seed of its own for each request, the same for every server and launch.

        Not for draws: two servers' samples are compared as independent ones.
        """
        task = self.task
        parts = f"{task.seed}:{task.cell.repeat}:{self.prompt.id}:{len(self.records)}"
        if task.workload.draws is not None:
            parts += f":{task.cell.server}:{task.cell.launch}:{self.draw}"
        return int.from_bytes(hashlib.sha256(parts.encode()).digest()[:8]) >> (64 - SEED_BITS)

    def _record(self, exchange: Exchange, sampling: Sampling, prompt_sha256: str) -> RequestRecord:
        answer = exchange.answer
        if not sampling.ignore_eos:
            answer = cut_at_stop(answer, self.tokenizer.eos_ids, self.tokenizer.decode)
        return RequestRecord(
            cell=self.task.cell,
            prompt_id=self.prompt.id,
            turn=len(self.records),
            tags=self._tags(),
            prompt_sha256=prompt_sha256,
            route=self.task.workload.route,
            stream=self.task.workload.stream,
            sampling=sampling,
            sent_unix_s=exchange.sent_unix_s,
            wait_s=max(0.0, exchange.sent_monotonic_s - self.due_s),
            events=answer.events,
            end_s=exchange.end_s,
            text=answer.text,
            tool_calls=answer.tool_calls,
            output_ids=answer.output_ids,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            overshoot_tokens=answer.overshoot_tokens,
            cached_tokens=answer.cached_tokens,
            retractions=answer.retractions,
            finish_reason=answer.finish_reason,
            spec=answer.spec,
            tree=answer.tree,
            status=exchange.status,
            detail=exchange.detail,
        )
