"""Requests to running servers: prompts, answers with their times, and closed loops."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from servers import ROOT, CheckError, JsonObject

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.prompts import Prompt, draw, load_prompts
from ddtree_bench.workloads.tools import TOOLS

CLASSES = ("short", "longform", "multiturn", "structured", "agentic")
TOKENS = 128
PATIENCE_S = 120.0
_CONNECTIONS = threading.local()


# --- prompts


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt as token ids, and what it belongs to."""

    group: str
    ids: tuple[int, ...]


def class_questions(
    target: Path, count: int, seed: int, answerer: Server | None = None
) -> list[Question]:
    """`count` prompts of each workload class, in turn; other seeds draw others.

    Prompts of several turns ask the second one behind what `answerer` says to the first, so that
    all servers read the same; without one they ask the first.
    """
    tokenizer = PromptTokenizer.load(target)
    folder = ROOT / "workflow/resources/prompts"
    drawn = {
        name: draw(_unpinned(load_prompts(folder / f"{name}.jsonl")), count, seed)
        for name in CLASSES
    }
    questions = []
    for place in range(count):
        for name in CLASSES:
            prompt = drawn[name][place]
            messages = _opening(prompt)
            ids = tokenizer.render(messages)
            if answerer is not None and len(prompt.turns) > 1:
                said = tokenizer.decode(answerer.ask_whole(ids).ids)
                messages.append({"role": "assistant", "content": said})
                messages.append({"role": "user", "content": prompt.turns[1]})
                ids = tokenizer.render(messages)
            questions.append(Question(name, ids))
    return questions


def _unpinned(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The same prompts, none of which is in every sample."""
    return [prompt.model_copy(update={"pinned": False}) for prompt in prompts]


def _opening(prompt: Prompt) -> list[Mapping[str, str]]:
    system = [prompt.system] if prompt.system else []
    if prompt.tools:
        system += ['Reply with JSON only: {"tool": "NAME", "arguments": {...}}. Tools:']
        system += [f"- {name}: {TOOLS[name].description}" for name in prompt.tools]
    messages = [{"role": "system", "content": "\n".join(system)}] if system else []
    return [*messages, {"role": "user", "content": prompt.turns[0]}]


def eval_questions(target: Path) -> list[Question]:
    """The prompts of `reference_engine.json`, in its order."""
    tokenizer = PromptTokenizer.load(target)
    groups = json.loads((ROOT / "benchmarks/eval-prompts.json").read_text(encoding="utf-8"))
    return [
        Question(group, tokenizer.render([{"role": "user", "content": text}]))
        for group, texts in groups.items()
        for text in texts
    ]


def long_questions(target: Path, length: int, count: int) -> list[Question]:
    """Prompts of exactly `length` tokens: questions in a row, each prompt from another start."""
    pool = [token for question in eval_questions(target) for token in question.ids]
    question = eval_questions(target)[0].ids
    need = length - len(question)
    return [
        Question(f"context {length}", tuple(_around(pool, 97 * start, need)) + question)
        for start in range(count)
    ]


def _around(pool: Sequence[int], start: int, count: int) -> list[int]:
    return [pool[(start + place) % len(pool)] for place in range(count)]


# --- one request


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request gave; seconds on one clock.

    Attributes:
        ids: token ids.
        steps: verify steps; without speculation, tokens after the first.
        accepted: accepted drafts.
        sent_s, first_s, end_s: sending, first and last event; the first holds one token.
        fields: `spec_*` and `ddtree_*` of `meta_info`, and the reason of the end.
    """

    ids: tuple[int, ...]
    steps: int
    accepted: int
    sent_s: float
    first_s: float
    end_s: float
    fields: JsonObject = field(default_factory=dict)

    @property
    def produced(self) -> int:
        """Tokens of the verify steps, also those cut at the answer's end."""
        return self.steps + self.accepted


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    name: str
    url: str

    def ask(self, ids: Sequence[int], tokens: int = TOKENS, **sampling: object) -> Answer:
        """A streamed answer; greedy unless `sampling` says otherwise.

        Raises:
            CheckError: the server refused, or the answer is not whole.
        """
        sent_s, first, last, times = time.perf_counter(), b"", b"", []
        response = self._send(_body(ids, tokens, sampling, stream=True))
        for line in response:
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
                first, last = first or line[6:], line[6:]
        if not times or "meta_info" not in (whole := json.loads(last)):
            raise CheckError(f"{self.name}: {last[:300]!r}")
        if json.loads(first)["meta_info"]["completion_tokens"] > 1:
            times[0] = times[-1]  # nobody knows how many steps came before it
        return _answer(whole, sent_s, times[0], times[-1])

    def ask_by_step(self, ids: Sequence[int], tokens: int) -> tuple[list[int], list[int]]:
        """A greedy answer, and how many of its tokens each verify step gave.

        Raises:
            CheckError: the events of the stream are not the steps.
        """
        response = self._send(_body(ids, tokens, {}, stream=True))
        events = [json.loads(line[6:]) for line in response if line.startswith(b"data: {")]
        counts = [event["meta_info"]["completion_tokens"] for event in events]
        # the prefill's event holds one token; the last one may only tell the end
        lens = [new for new in (b - a for a, b in pairwise(counts)) if new > 0]
        steps = events[-1]["meta_info"].get("spec_verify_ct", counts[-1] - 1)
        if counts[0] != 1 or len(lens) != steps:
            raise CheckError(f"{self.name}: {len(lens)} events for {steps} steps")
        return events[-1]["output_ids"], lens

    def ask_whole(self, ids: Sequence[int], tokens: int = TOKENS, **sampling: object) -> Answer:
        """An answer in one piece; its first event is its last."""
        sent_s = time.perf_counter()
        whole = json.loads(self._send(_body(ids, tokens, sampling, stream=False)).read())
        if "meta_info" not in whole:
            raise CheckError(f"{self.name}: {str(whole)[:300]}")
        end_s = time.perf_counter()
        return _answer(whole, sent_s, end_s, end_s)

    def hang_up(self, ids: Sequence[int], events: int, **sampling: object) -> None:
        """Leave an answer after its first events."""
        body = json.dumps(_body(ids, 512, {"ignore_eos": True} | sampling, stream=True)).encode()
        request = urllib.request.Request(
            f"{self.url}/generate", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            for _ in range(2 * events):  # every other line is empty
                response.readline()

    def get(self, path: str) -> JsonObject:
        """A JSON page of the server."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=PATIENCE_S) as response:
            text = response.read()
        return json.loads(text) if text.startswith(b"{") else {}

    def flush(self) -> None:
        """Empty the prefix cache; the server refuses while anything runs."""
        request = urllib.request.Request(f"{self.url}/flush_cache", b"", method="POST")
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=PATIENCE_S).close()

    def regrets(self, ids: Sequence[int], answer: Sequence[int]) -> list[float]:
        """By how many nats each token of an answer is behind this server's first choice."""
        body = {
            "input_ids": [*ids, *answer],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": len(ids) - 1,
            "top_logprobs_num": 1,
        }
        meta = json.loads(self._send(body).read())["meta_info"]
        taken = [entry[0] for entry in meta["input_token_logprobs"]][-len(answer) :]
        best = [places[0][0] for places in meta["input_top_logprobs"][-len(answer) :]]
        return [b - t for b, t in zip(best, taken, strict=True)]

    def loop(
        self,
        questions: Sequence[Question],
        clients: int,
        tokens: int = TOKENS,
        **sampling: object,
    ) -> Loop:
        """All questions, so many at a time, each client asking anew when it has its answer."""
        begun_s = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            answers = list(pool.map(lambda q: self.ask_whole(q.ids, tokens, **sampling), questions))
        return Loop(answers, time.perf_counter() - begun_s)

    def warm(self, questions: Sequence[Question], clients: int) -> None:
        """Compile what the first requests of each batch size compile, and read the prompts.

        A prompt that is read in other pieces is rounded otherwise, so each is read whole once.
        """
        for question in questions:
            self.ask_whole(question.ids, 1)
        for question in questions[:3]:
            self.ask(question.ids)
        size = 2
        while size <= clients:
            self.loop([questions[i % len(questions)] for i in range(size)], size, 32)
            size *= 2

    def _send(self, body: JsonObject) -> http.client.HTTPResponse:
        """POST to /generate over this thread's kept-alive connection."""
        open_ = _CONNECTIONS.__dict__.setdefault("by_url", {})
        for attempt in range(2):
            if self.url not in open_:
                parts = urlsplit(self.url)
                open_[self.url] = http.client.HTTPConnection(
                    str(parts.hostname), parts.port, timeout=PATIENCE_S
                )
            try:
                headers = {"Content-Type": "application/json"}
                open_[self.url].request("POST", "/generate", json.dumps(body), headers)
                response: http.client.HTTPResponse = open_[self.url].getresponse()
                return response
            except (http.client.HTTPException, OSError) as error:
                del open_[self.url]  # an idle connection that the server has closed
                if attempt == 1:
                    raise CheckError(f"{self.name}: {error!r}") from error
        raise AssertionError


@dataclass(frozen=True, slots=True)
class Loop:
    """Answers of a closed loop in the order of its questions, and its duration."""

    answers: list[Answer]
    wall_s: float


def _body(ids: Sequence[int], tokens: int, sampling: JsonObject, *, stream: bool) -> JsonObject:
    settings = {"temperature": 0, "max_new_tokens": tokens} | sampling
    return {"input_ids": list(ids), "sampling_params": settings, "stream": stream}


def _answer(whole: JsonObject, sent_s: float, first_s: float, end_s: float) -> Answer:
    meta, ids = whole["meta_info"], whole["output_ids"]
    assert isinstance(meta, dict)
    assert isinstance(ids, list)
    known = {k: v for k, v in meta.items() if k.startswith(("spec_", "ddtree_"))}
    known["finish"] = meta.get("finish_reason")
    steps = meta.get("spec_verify_ct", len(ids) - 1)
    accepted = meta.get("spec_num_correct_drafts", 0)
    return Answer(tuple(ids), steps, accepted, sent_s, first_s, end_s, known)


def in_turn(
    servers: Sequence[Server],
    questions: Sequence[Question],
    ask: Callable[[Server, Question], Answer],
    deadline_s: float,
) -> dict[str, list[list[Answer]]]:
    """Answers by server, a list of two a question: servers forwards, then backwards.

    One request is in flight at a time. Stops before a question that begins after the deadline.
    """
    found: dict[str, list[list[Answer]]] = {server.name: [] for server in servers}
    for question in questions:
        if time.monotonic() > deadline_s:
            break
        pairs: dict[str, list[Answer]] = {server.name: [] for server in servers}
        for server in [*servers, *reversed(servers)]:
            pairs[server.name].append(ask(server, question))
        for name, pair in pairs.items():
            found[name].append(pair)
    return found


def first_difference(some: Sequence[int], others: Sequence[int]) -> int | None:
    """Where two answers part, if they do."""
    places = range(min(len(some), len(others)))
    return next((i for i in places if some[i] != others[i]), None)
