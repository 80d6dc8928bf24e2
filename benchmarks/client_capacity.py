"""How many streams the client can follow before it is what is measured.

A server process sends answers in the shape of SGLang's `/generate` stream (text and ids of the
whole answer so far in every event) at a known rate, one token to every open stream in each step,
and notes when it sent what. The client asks as a cell would (`measure_cell`). Prints a line a
setting and writes them to benchmarks/client_capacity.json under the name given.

    PYTHONPATH=src python benchmarks/client_capacity.py NAME [--streams 1 16 64] [--tokens 256 1024]

Server and client need a core each; on two cores nothing else should run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.client.client import Client
from ddtree_bench.config import Workload
from ddtree_bench.hashing import json_sha256
from ddtree_bench.prompts import Prompt
from ddtree_bench.records import CellId, RequestRecord
from ddtree_bench.workloads.run import CellTask, measure_cell

HERE: Final = Path(__file__).parent
TOKENIZER: Final = HERE.parent / "models/SmolLM2-135M-Instruct"
TEXT: Final = HERE.parent / "workflow/resources/prompts/README.md"
UNFINISHED: Final = b'"finish_reason":null'
FINISHED: Final = b'"finish_reason":{"type":"length"}'
STEPS_PER_S: Final = 150.0
ANSWERS_A_STREAM: Final = 2
SPREAD: Final = 0.25
"""Answers are shorter than the longest by up to this share, so that they do not all end at once."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the client saw of what the server sent."""

    streams: int
    tokens: int
    sent_tok_per_s: float
    """Of each stream, by the server's notes."""
    cell_error: float
    """Relative difference of the mean decode speed, client against server."""
    request_error: float
    """The largest such difference of a single request."""
    delay_p50_ms: float
    """From writing an event to its time at the client."""
    delay_p99_ms: float
    client_cpu_share: float
    peak_mib: float
    """Resident memory of the client at most, since the process began."""


@dataclass(slots=True)
class Server:
    """Sends prepared answers, one more token in each step to every open stream."""

    events: list[bytes]
    """`[n - 1]`: the event that carries the first n tokens."""
    sent: dict[str, list[float]] = field(default_factory=dict)
    """By the hash of the prompt: Unix times of its events."""
    step: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Serve until killed; prints the port."""
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        due_s = time.monotonic()
        while True:
            due_s += 1 / STEPS_PER_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            step, self.step = self.step, asyncio.Event()
            step.set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    body = json.dumps(self.sent).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
                    writer.write(body)
                    continue
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await self.stream(json.loads(await reader.readexactly(length)), writer)

    async def stream(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        """Send one answer."""
        name = json_sha256(request["input_ids"])
        most = request["sampling_params"]["max_new_tokens"]
        tokens = most - int(name, 16) % max(1, int(most * SPREAD))
        times = self.sent[name] = []
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        for event in self.events[: tokens - 1]:
            await self.step.wait()
            times.append(time.time())
            writer.write(chunk(event))
        await self.step.wait()
        times.append(time.time())
        last = self.events[tokens - 1].replace(UNFINISHED, FINISHED)
        writer.write(chunk(last) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def chunk(data: bytes) -> bytes:
    """A chunk of an HTTP body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def events(tokens: int) -> list[bytes]:
    """Events of an answer of so many real tokens, each with everything before it."""
    tokenizer = PromptTokenizer.load(TOKENIZER)
    ids = tokenizer.render([{"role": "user", "content": TEXT.read_text(encoding="utf-8") * 4}])
    ids = tuple(token for token in ids if token not in tokenizer.eos_ids)[:tokens]
    return [event(ids[:n], tokenizer.decode(ids[:n])) for n in range(1, tokens + 1)]


def event(ids: tuple[int, ...], text: str) -> bytes:
    """One event with the keys that SGLang 0.5.17 sends."""
    meta = {
        "id": "92a43402d50f45309c413fcf2259370c",
        "finish_reason": None,
        "prompt_tokens": 46,
        "weight_version": "default",
        "num_retractions": 0,
        "forward_entry_time": 1795983275.269066,
        "prefill_finished_time": 1795983275.2889402,
        "queue_time": 0.0002574920654296875,
        "reasoning_tokens": 0,
        "completion_tokens": len(ids),
        "cached_tokens": 0,
        "cached_tokens_details": {"device": 0, "host": 0},
        "dp_rank": None,
    }
    body = {"text": text, "output_ids": ids, "meta_info": meta}
    return b"data: %s\n\n" % json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


@contextlib.contextmanager
def served(tokens: int) -> Iterator[str]:
    """The address of a running server process."""
    argv = [sys.executable, __file__, "serve", "--tokens", str(tokens)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def measure(streams: int, tokens: int) -> Capacity:
    """Run one cell and compare it with the server's notes."""
    prompts = tuple(
        Prompt(id=f"p{n}", turns=(f"Count to {n}.",)) for n in range(streams * ANSWERS_A_STREAM)
    )
    workload = Workload.model_validate(
        {"class": "short", "prompts": "-", "max_new_tokens": tokens, "concurrency": [streams]}
    )
    cell = CellId(server="mock", launch=1, workload="short", concurrency=streams, repeat=1)
    tokenizer = PromptTokenizer.load(TOKENIZER)
    with served(tokens) as url, Client(url, model="mock", timeout_s=30) as client:
        started_s, cpu_s = time.monotonic(), time.process_time()
        records = measure_cell(client, tokenizer, CellTask(cell, workload, prompts, seed=0))
        share = (time.process_time() - cpu_s) / (time.monotonic() - started_s)
        with urllib.request.urlopen(f"{url}/sent") as response:
            sent = json.load(response)
    return compared(streams, tokens, records, sent, share)


def compared(
    streams: int,
    tokens: int,
    records: tuple[RequestRecord, ...],
    sent: dict[str, list[float]],
    share: float,
) -> Capacity:
    """The client's times beside the server's."""
    sent_speeds, seen_speeds, delays_s = [], [], []
    for record in records:
        assert record.status.ok, record.detail
        there_s = np.array(sent[record.prompt_sha256])
        here_s = record.sent_unix_s + np.array([each.at_s for each in record.events])
        assert len(here_s) == len(there_s) == record.completion_tokens
        sent_speeds.append((len(there_s) - 1) / np.ptp(there_s))
        seen_speeds.append((len(here_s) - 1) / np.ptp(here_s))
        delays_s.append(here_s - there_s)
    errors = np.abs(np.divide(seen_speeds, sent_speeds) - 1)
    p50, p99 = np.percentile(np.concatenate(delays_s), [50, 99]) * 1e3
    return Capacity(
        streams=streams,
        tokens=tokens,
        sent_tok_per_s=round(float(np.mean(sent_speeds)), 2),
        cell_error=round(abs(float(np.mean(seen_speeds) / np.mean(sent_speeds)) - 1), 5),
        request_error=round(float(errors.max()), 5),
        delay_p50_ms=round(float(p50), 3),
        delay_p99_ms=round(float(p99), 3),
        client_cpu_share=round(share, 3),
        peak_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="key in the JSON file, such as `before`")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 1024])
    given = parser.parse_args()
    if given.name == "serve":
        asyncio.run(Server(events(given.tokens[0])).run())
        return
    results = []
    for tokens in given.tokens:
        for streams in given.streams:
            results.append(asdict(measure(streams, tokens)))
            print(results[-1], flush=True)
    path = HERE / "client_capacity.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**known, given.name: results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
