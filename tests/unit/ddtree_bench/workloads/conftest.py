"""A client that answers from a script, for workloads without a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import cell_id, write_model

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.client.answers import Answer
from ddtree_bench.client.client import Client, Exchange
from ddtree_bench.config import Workload
from ddtree_bench.prompts import Prompt
from ddtree_bench.records import Sampling
from ddtree_bench.status import Status
from ddtree_bench.workloads.ask import CellTask

Reply = str | Status | Answer


class ScriptedClient(Client):
    """Answers what `reply` says to the rendered prompt or the last message."""

    def __init__(self, tokenizer: PromptTokenizer, reply: Callable[[str], Reply]) -> None:
        super().__init__("http://127.0.0.1:9", model="m", timeout_s=1)
        self.tokenizer = tokenizer
        self.reply = reply
        self.asked: list[str] = []
        self.samplings: list[Sampling] = []
        self.templates: list[Mapping[str, object] | None] = []
        self.chats: list[tuple[list[Any], list[Any]]] = []
        self._lock = threading.Lock()

    def generate(
        self, input_ids: Sequence[int], sampling: Sampling, *, stream: bool = True
    ) -> Exchange:
        """Answer the rendered prompt."""
        return self._answer(self.tokenizer.decode(input_ids), sampling)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        *,
        stream: bool = True,
        template: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Exchange:
        """Answer the last message."""
        self.templates.append(template)
        self.chats.append((list(messages), list(tools)))
        return self._answer(messages[-1]["content"], sampling)

    def _answer(self, prompt: str, sampling: Sampling) -> Exchange:
        with self._lock:
            self.asked.append(prompt)
            self.samplings.append(sampling)
        reply = self.reply(prompt)
        failed = isinstance(reply, Status)
        answer = reply if isinstance(reply, Answer) else self._said("" if failed else reply)
        return Exchange(
            sent_unix_s=time.time(),
            sent_monotonic_s=time.monotonic(),
            end_s=0.0,
            answer=Answer() if failed else answer,
            status=reply if isinstance(reply, Status) else Status.OK,
        )

    def _said(self, text: str) -> Answer:
        ids = self.tokenizer._obeying.encode(text, add_special_tokens=False).ids
        return Answer(text, tuple(ids), 5, len(ids), finish_reason="stop")


@pytest.fixture
def tokenizer(tmp_path: Path) -> PromptTokenizer:
    return PromptTokenizer.load(write_model(tmp_path / "model"))


@pytest.fixture
def scripted(tokenizer: PromptTokenizer) -> Callable[..., ScriptedClient]:
    """Makes a client from a function of the prompt, or from the replies in order."""

    def make(*replies: Reply, by: Callable[[str], Reply] | None = None) -> ScriptedClient:
        waiting = iter(replies)
        return ScriptedClient(tokenizer, by or (lambda _: next(waiting)))

    return make


@pytest.fixture
def task() -> Callable[..., CellTask]:
    """Makes a task from prompts; keywords are keys of the workload or of the cell's name."""

    def make(*prompts: Prompt, seed: int = 0, **changes: Any) -> CellTask:
        keys = ("concurrency", "repeat", "launch", "arrivals_per_s")
        names = {k: changes.pop(k) for k in keys if k in changes}
        fields = {"class": "short", "prompts": "p.jsonl", **changes}
        return CellTask(cell_id(**names), Workload.model_validate(fields), prompts, seed)

    return make
