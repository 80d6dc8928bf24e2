"""Stock SGLang on this machine's CPU, started from `config/sglang-cpu.yaml` by our own code."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.client.answers import Answer
from ddtree_bench.client.client import Client
from ddtree_bench.config import Server, load_config
from ddtree_bench.records import Sampling
from ddtree_bench.server.deadline import Deadline
from ddtree_bench.server.engines import command
from ddtree_bench.server.identity import check_identity
from ddtree_bench.server.process import ServerProcess, free_port
from ddtree_bench.server.readiness import wait_until_ready

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "config/sglang-cpu.yaml"
PLAIN, CHAIN, NGRAM = "ar", "dflash-b16", "ngram"
TERM_PATIENCE_S = 15.0
SAMPLING = Sampling(max_new_tokens=64)
QUESTION = [{"role": "user", "content": "Write a Python function that adds two numbers."}]
NEAR_TIE_NATS = 0.5
"""How far behind the target's first choice a token may be. Rounding to bf16 depends on how many
tokens are computed at once; it was seen to swap choices that lie up to 0.21 apart in float32."""

pytestmark = pytest.mark.heavy


@dataclass(frozen=True, slots=True)
class Seen:
    """What one server said, and how it ended."""

    info: dict[str, Any]
    cold: Answer
    """To QUESTION, just after a flush."""
    warm: Answer
    """To QUESTION again."""
    flushed: Answer
    """To QUESTION again, after another flush."""
    regrets: dict[str, list[float]]
    """Plain decoding only: by server, `regret` of each token of its cold answer."""
    processes: tuple[str, ...]
    term_s: float | None
    """From SIGTERM to the end of the last process; None if one outlived TERM_PATIENCE_S."""
    log: str


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for logs; the working folder is the repository's root, as in a run."""
    before = Path.cwd()
    os.chdir(ROOT)
    yield tmp_path_factory.mktemp("sglang-cpu")
    os.chdir(before)
    observe.cache_clear()


def configured(name: str) -> Server:
    """A server of the configuration; skips where something it needs is not there."""
    server = load_config(CONFIG).servers[name]
    for path in filter(None, (server.python, server.model, server.drafter)):
        if not (ROOT / path).exists():
            pytest.skip(f"{path} is missing; docs/sglang-cpu.md says how to get it")
    return server


@cache
def observe(name: str, logs: Path) -> Seen:
    """Start a server, ask it, end it by SIGTERM; once for all tests."""
    server, port = configured(name), free_port()
    others = {other: observe(other, logs) for other in (CHAIN, NGRAM) if name == PLAIN}
    prompt = PromptTokenizer.load(Path(server.model)).render(QUESTION)
    process = ServerProcess(command(name, server, port, os.environ), logs / f"{name}.log", port)
    client = Client(f"http://127.0.0.1:{port}", model=name, timeout_s=120)
    with client, process:
        wait_until_ready(process, client, prompt, Deadline.after(server.startup_timeout_s))
        info = client.server_info()
        check_identity(name, server, info)
        client.flush_cache()
        cold, warm = (client.generate(prompt, SAMPLING).require() for _ in range(2))
        client.flush_cache()
        flushed = client.generate(prompt, SAMPLING).require()
        regrets = {
            other: regret(client.base_url, prompt, seen.cold.output_ids or ())
            for other, seen in others.items()
        }
        processes, term_s = terminate()
    log = process.log_path.read_text(encoding="utf-8", errors="replace")
    return Seen(info, cold, warm, flushed, regrets, processes, term_s, log)


def regret(base_url: str, prompt: Sequence[int], answer: Sequence[int]) -> list[float]:
    """By how many nats each token of an answer is less probable than the most probable one."""
    body = {
        "input_ids": [*prompt, *answer],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "logprob_start_len": len(prompt) - 1,
        "top_logprobs_num": 1,
    }
    response = requests.post(f"{base_url}/generate", json=body, timeout=120)
    response.raise_for_status()
    meta = response.json()["meta_info"]
    taken = [logprob for logprob, *_ in meta["input_token_logprobs"]][-len(answer) :]
    best = [places[0][0] for places in meta["input_top_logprobs"][-len(answer) :]]
    return [b - t for b, t in zip(best, taken, strict=True)]


def terminate() -> tuple[tuple[str, ...], float | None]:
    """Command lines of the server's processes, and the seconds that they outlived SIGTERM."""
    [leader] = psutil.Process().children()
    processes = [leader, *leader.children(recursive=True)]
    names = tuple(" ".join(process.cmdline()) for process in processes)
    begun_s = time.monotonic()
    os.killpg(leader.pid, signal.SIGTERM)
    _, alive = psutil.wait_procs(processes, timeout=TERM_PATIENCE_S)
    return names, None if alive else time.monotonic() - begun_s


@pytest.mark.parametrize("name", [CHAIN, NGRAM, PLAIN])
def test_a_server_streams_an_answer(name: str, logs: Path) -> None:
    """More than 8 tokens come in several events, and the counts of ids and tokens agree."""
    answer = observe(name, logs).cold
    assert answer.completion_tokens is not None
    assert answer.completion_tokens > 8
    assert answer.output_ids is not None
    assert len(answer.output_ids) == answer.completion_tokens
    assert len(answer.events) > 1
    assert "def add" in answer.text


@pytest.mark.parametrize(
    ("name", "algorithm", "width"),
    [(CHAIN, "DFLASH", 16), (NGRAM, "NGRAM", 12), (PLAIN, None, None)],
)
def test_a_server_says_what_it_runs(
    name: str, algorithm: str | None, width: int | None, logs: Path
) -> None:
    """`/server_info` names algorithm and width, the CPU, and the release; the log names float32."""
    seen = observe(name, logs)
    info = seen.info
    assert info["speculative_algorithm"] == algorithm
    assert info["speculative_num_draft_tokens"] == width
    assert (info["device"], info["version"]) == ("cpu", "0.5.17")
    assert "dtype: torch.float32" in seen.log


@pytest.mark.parametrize("name", [CHAIN, NGRAM, PLAIN])
def test_every_hook_found_its_target(name: str, logs: Path) -> None:
    """SGLang only logs a plug-in or hook that fails; the log has no such line."""
    log = observe(name, logs).log
    assert "Failed to" not in log
    assert "Traceback" not in log


@pytest.mark.parametrize(("name", "width"), [(CHAIN, 16), (NGRAM, 12)])
def test_counters_of_speculation_agree(name: str, width: int, logs: Path) -> None:
    """Steps, accepted drafts, histogram and tokens tell the same story."""
    answer = observe(name, logs).cold
    spec, tokens = answer.spec, answer.completion_tokens
    assert spec is not None
    assert tokens is not None
    assert sum(spec.histogram) == spec.verify_steps
    assert sum(i * n for i, n in enumerate(spec.histogram)) == spec.accepted_drafts
    assert len(spec.histogram) <= width
    # prefill gives the first token; each step gives its accepted drafts and one more, and what
    # the last step gave past the end of the answer is cut
    produced = 1 + spec.verify_steps + spec.accepted_drafts
    assert 0 <= produced - tokens < width
    assert spec.accepted_drafts > 0


def test_plain_decoding_has_no_counters_of_speculation(logs: Path) -> None:
    """No speculation is not zero accepted drafts."""
    assert observe(PLAIN, logs).cold.spec is None


@pytest.mark.parametrize("name", [CHAIN, NGRAM])
def test_speculation_gives_what_the_target_would_choose(name: str, logs: Path) -> None:
    """Up to near ties, every token is the first choice of plain decoding at its place."""
    plain = observe(PLAIN, logs)
    regrets = plain.regrets[name]
    assert len(regrets) == observe(name, logs).cold.completion_tokens
    assert max(regrets) <= NEAR_TIE_NATS
    # with another rounding most tokens still have no rival at all
    assert sum(r == 0 for r in regrets) > 0.9 * len(regrets)


def test_a_flush_empties_the_memory_of_ngram(logs: Path) -> None:
    """NGRAM drafts from earlier answers, so a repeated prompt is fast; a flush ends that."""
    seen = observe(NGRAM, logs)
    assert seen.cold.spec is not None
    assert seen.warm.spec is not None
    assert seen.flushed.spec is not None
    assert seen.warm.spec.verify_steps < seen.cold.spec.verify_steps
    assert seen.flushed.spec.verify_steps == seen.cold.spec.verify_steps
    assert seen.flushed.cached_tokens == 0


@pytest.mark.parametrize("name", [CHAIN, NGRAM, PLAIN])
def test_term_ends_the_whole_group(name: str, logs: Path) -> None:
    """SIGTERM to the group ends the server, its scheduler and its detokenizer in time."""
    seen = observe(name, logs)
    assert any("sglang::detokenizer" in process for process in seen.processes)
    assert any("sglang::scheduler" in process for process in seen.processes)
    assert seen.term_s is not None
