"""Starts DDTREE servers on this machine's CPU."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.client.client import Client
from ddtree_bench.config import Server, load_config
from ddtree_bench.server.deadline import Deadline
from ddtree_bench.server.process import Command, ServerProcess, free_port
from ddtree_bench.server.readiness import wait_until_ready

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "config/sglang-cpu.yaml"
PLUGIN_SITE = "src/ddtree_sglang/site"
START_PATIENCE_S = 240.0
ANSWER_PATIENCE_S = 300.0
NEAR_TIE_NATS = 0.5
"""How far behind the target's first choice a token may be. Rounding to bf16 depends on how many
tokens are computed at once; it was seen to swap choices that lie up to 0.21 apart in float32."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers, and where it writes."""

    url: str
    log: Path

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON answer to a JSON body."""
        response = requests.post(f"{self.url}{path}", json=body, timeout=ANSWER_PATIENCE_S)
        response.raise_for_status()
        return response.json()

    def answer(self, prompt: Sequence[int], max_new_tokens: int, **sampling: Any) -> dict[str, Any]:
        """The answer to token ids; greedy unless `sampling` says otherwise."""
        settings = {"temperature": 0, "max_new_tokens": max_new_tokens} | sampling
        return self.post("/generate", {"input_ids": list(prompt), "sampling_params": settings})

    def answers(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, at_once: int
    ) -> list[dict[str, Any]]:
        """Answers in the order of the prompts, so many at a time."""
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda prompt: self.answer(prompt, max_new_tokens), prompts))


def configured() -> Server:
    """The chain's server of the configuration; skips where something it needs is not there."""
    server = load_config(CONFIG).servers["dflash-b16"]
    for path in filter(None, (server.python, server.model, server.drafter)):
        if not (ROOT / path).exists():
            pytest.skip(f"{path} is missing; docs/sglang-cpu.md says how to get it")
    return server


@contextmanager
def serving(name: str, folder: Path, *args: str) -> Iterator[Running]:
    """A server with the given arguments after the configuration's, with overlap scheduling."""
    server, port = configured(), free_port()
    common = [arg for arg in server.args if arg != "--disable-overlap-schedule"]
    argv = [server.python, "-m", "sglang.launch_server", "--model-path", server.model]
    argv += ["--port", str(port), "--sleep-on-idle", *common, *args]
    paths = f"{server.env['PYTHONPATH']}:{PLUGIN_SITE}"
    env = {**os.environ, **server.env, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
    process = ServerProcess(Command(tuple(argv), env), folder / f"{name}.log", port)
    url = f"http://127.0.0.1:{port}"
    prompt = PromptTokenizer.load(Path(server.model)).render([{"role": "user", "content": "Hi"}])
    with Client(url, model=name, timeout_s=ANSWER_PATIENCE_S) as client, process:
        wait_until_ready(process, client, prompt, Deadline.after(START_PATIENCE_S))
        yield Running(url, process.log_path)


@contextmanager
def tree_server(
    folder: Path, budget: int, topk: int, *args: str, name: str | None = None
) -> Iterator[Running]:
    """A DDTREE server; `folder` gets its log."""
    drafter = configured().drafter
    assert drafter is not None
    flags = ("--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", drafter)
    sizes = ("--speculative-ddtree-budget", str(budget), "--speculative-ddtree-topk-cap", str(topk))
    with serving(name or f"tree-b{budget}-k{topk}", folder, *flags, *sizes, *args) as server:
        yield server


def regret(plain: Running, prompt: Sequence[int], answer: Sequence[int]) -> list[float]:
    """By how many nats each token of an answer is less probable than the most probable one."""
    body = {
        "input_ids": [*prompt, *answer],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "logprob_start_len": len(prompt) - 1,
        "top_logprobs_num": 1,
    }
    meta = plain.post("/generate", body)["meta_info"]
    taken = [logprob for logprob, *_ in meta["input_token_logprobs"]][-len(answer) :]
    best = [places[0][0] for places in meta["input_top_logprobs"][-len(answer) :]]
    return [b - t for b, t in zip(best, taken, strict=True)]


def check_choices(plain: Running, prompt: Sequence[int], answer: Sequence[int]) -> None:
    """Up to near ties, every token is what plain decoding would choose at its place."""
    behind = regret(plain, prompt, answer)
    assert max(behind) <= NEAR_TIE_NATS
    assert sum(nats == 0 for nats in behind) > 0.9 * len(behind)


def first_difference(some: Sequence[int], others: Sequence[int]) -> int | None:
    """Where two answers part, if they do."""
    places = range(min(len(some), len(others)))
    return next((i for i in places if some[i] != others[i]), None)


def shared_length(
    plain: Running, prompt: Sequence[int], some: Sequence[int], others: Sequence[int]
) -> int:
    """How many tokens two answers share; fails unless they part at a near tie of the target.

    Behind the first difference they are answers to different texts, so nothing is compared there.
    """
    place = first_difference(some, others)
    if place is None:
        assert len(some) == len(others)
        return len(some)
    for ids in (some, others):
        assert regret(plain, prompt, ids[: place + 1])[-1] <= NEAR_TIE_NATS
    return place


def steps_within(answer: dict[str, Any], begin: int, end: int) -> int:
    """Verify steps of a traced answer whose first token is one of those from `begin` to `end`."""
    trace = answer["meta_info"]["ddtree_trace"]
    return sum(entry is not None for entry in trace[begin:end])
