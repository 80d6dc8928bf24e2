"""A scriptable stand-in for an inference server, standard library only.

It speaks the routes and field names of SGLang that the pipeline uses and fails on demand:

    --fault KIND@N      in the N-th generation request (counted from 1)
    --fault KIND@N+     in that request and all later ones
    --fault-once FILE   faults of all kinds happen only while FILE does not exist; it is made then

Kinds: die, crash (with SGLang's last words), oom, hang, http500, stream-error, no-tokens,
no-usage, no-ids, garbage, truncate, bad-counts.
See `_parser` for what can go wrong outside of requests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

ACCEPTED_CYCLE = (2, 0, 1, 3)
"""Accepted drafts of the verify steps, over and over."""
LETTERS = "abcdefghijklmnopqrstuvwxyz "


@dataclass
class State:
    """What all requests share."""

    options: argparse.Namespace
    generations: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def speculative(self) -> bool:
        """Whether answers come in verify steps."""
        return self.options.speculative_algorithm is not None

    @property
    def width(self) -> int:
        """Tokens verified in a step."""
        if self.options.speculative_ddtree_budget is not None:
            return int(self.options.speculative_ddtree_budget) + 1
        return int(self.options.speculative_dflash_block_size or 16)

    def next_fault(self) -> str | None:
        """The fault of the request that begins now; prints what is said in it."""
        with self.lock:
            self.generations += 1
            number = self.generations
        for line, when in self.options.say:
            if int(when) == number:
                say(line)
        for text in self.options.fault:
            kind, _, when = text.partition("@")
            wanted = int(when.rstrip("+"))
            if number == wanted or (when.endswith("+") and number > wanted):
                return kind if armed(self.options) else None
        return None


CRASH = """\
Scheduler hit an exception: Traceback (most recent call last):
  File "site-packages/sglang/srt/managers/scheduler.py", line 7, in run_batch
    step()
torch.AcceleratorError: CUDA error: an illegal memory access was encountered
"""


def say(text: str) -> None:
    """Print a line (or more) stamped as SGLang stamps them."""
    print(f"[{datetime.now():%Y-%m-%d %H:%M:%S}] {text}", flush=True)


def armed(options: argparse.Namespace) -> bool:
    """Whether faults happen in this life of the server."""
    once: Path | None = options.fault_once
    if once is None:
        return True
    if once.exists():
        return False
    once.touch()
    return True


class Answer:
    """One generated answer, event by event."""

    def __init__(self, state: State, prompt_tokens: int, sampling: dict[str, Any]) -> None:
        self.state = state
        self.prompt_tokens = prompt_tokens
        self.limit = int(sampling["max_new_tokens"])
        natural = self.limit if sampling.get("ignore_eos") else state.options.tokens
        self.length = min(self.limit, natural)
        self.stops = self.length < self.limit
        self.ids = [10 + i % len(LETTERS) for i in range(self.length)]
        if self.stops:
            self.ids[-1] = state.options.eos

    def steps(self) -> Iterator[int]:
        """Cumulative tokens after the prefill and after each step."""
        done = 1
        yield done
        for accepted in self.accepted():
            done += accepted + 1
            yield done

    def accepted(self) -> list[int]:
        """Accepted drafts of each verify step (no drafts without speculation)."""
        left = self.length - 1
        steps: list[int] = []
        while left > 0:
            wanted = ACCEPTED_CYCLE[len(steps) % 4] if self.state.speculative else 0
            steps.append(min(wanted, left - 1, self.state.width - 1))
            left -= steps[-1] + 1
        return steps

    def text(self, tokens: int) -> str:
        """The text of the first tokens, the stop token left out."""
        ids = self.ids[:tokens]
        return "".join(LETTERS[i - 10] for i in ids if i != self.state.options.eos)

    def top_logprobs(self) -> list[list[list[Any]]]:
        """At each place the token itself, and the next id as far below as 2.5 nats."""
        return [[[-0.1, id_, None], [-2.6, id_ + 1, None]] for id_ in self.ids]

    def finish(self) -> dict[str, Any]:
        """The finish reason."""
        if self.stops:
            return {"type": "stop", "matched": self.state.options.eos}
        return {"type": "length", "length": self.limit}

    def meta(self, tokens: int) -> dict[str, Any]:
        """`meta_info` after so many tokens; counters come with the last."""
        last = tokens == self.length
        meta: dict[str, Any] = {
            "id": "fake",
            "finish_reason": self.finish() if last else None,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": tokens,
            "cached_tokens": min(self.state.options.cached, self.prompt_tokens - 1),
        }
        return meta | (self.spec_meta() if last and self.state.speculative else {})

    def spec_meta(self) -> dict[str, Any]:
        """Counters of speculation for the whole answer."""
        accepted = self.accepted()
        histogram = [accepted.count(n) for n in range(max(accepted, default=0) + 1)]
        meta = {
            "spec_verify_ct": len(accepted),
            "spec_accepted_drafts": sum(accepted),
            "spec_proposed_drafts": len(accepted) * (self.state.width - 1),
            "spec_accept_histogram": histogram,
            "spec_correct_drafts_histogram": histogram,
            "ddtree_verify_width": self.state.width,
        }
        if self.state.options.speculative_algorithm == "DDTREE":
            meta |= {
                "ddtree_nodes_by_depth": [len(accepted) * (self.state.width - 1)],
                "ddtree_accepted_by_depth": [sum(a > d for a in accepted) for d in range(3)],
                "ddtree_accepted_by_rank": [sum(accepted)],
                "ddtree_spine_nodes": len(accepted),
            }
        return meta


class Handler(BaseHTTPRequestHandler):
    """The routes."""

    protocol_version = "HTTP/1.1"
    state: ClassVar[State]

    def do_GET(self) -> None:
        """Answer a GET."""
        if self._refused():
            return
        routes = {
            "/health": self._healthy,
            "/health_generate": self._healthy,
            "/server_info": self._server_info,
            "/get_server_info": self._server_info,
            "/v1/models": self._models,
            "/flush_cache": self._flush_cache,
        }
        routes.get(self.path.partition("?")[0], self._not_found)()

    def do_POST(self) -> None:
        """Answer a POST."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self._refused():
            return
        if self.path.startswith("/flush_cache"):
            self._flush_cache()
        elif self.path == "/generate":
            self._generate(json.loads(body))
        elif self.path == "/v1/chat/completions":
            self._chat(json.loads(body))
        else:
            self._not_found()

    def _refused(self) -> bool:
        """Whether the API key is wrong; the refusal repeats it, as some proxies do."""
        key, given = self.state.options.api_key, self.headers.get("Authorization", "")
        wrong = key is not None and given != f"Bearer {key}"
        if wrong:
            self._send_json(401, {"error": {"message": f"not authorised: {given}"}})
        return wrong

    def _healthy(self) -> None:
        self._send(503 if self.state.options.never_ready else 200, b"")

    def _not_found(self) -> None:
        self._send_json(404, {"detail": "Not Found"})

    def _flush_cache(self) -> None:
        if self.state.options.flushed is not None:
            self.state.options.flushed.touch()
        self._send(200, b"Cache flushed.\n")

    def _models(self) -> None:
        name = self.state.options.served_model_name
        self._send_json(200, {"object": "list", "data": [{"id": name, "object": "model"}]})

    def _server_info(self) -> None:
        options, speculative = self.state.options, self.state.speculative
        info = {
            "model_path": options.model_path,
            "tokenizer_path": options.model_path,
            "served_model_name": options.served_model_name,
            "speculative_algorithm": options.speculative_algorithm,
            "speculative_draft_model_path": options.speculative_draft_model_path,
            "speculative_num_draft_tokens": self.state.width if speculative else None,
            "speculative_dflash_block_size": options.speculative_dflash_block_size,
            "speculative_ddtree_budget": options.speculative_ddtree_budget,
            "speculative_ddtree_topk_cap": options.speculative_ddtree_topk_cap,
            "speculative_accept_threshold_single": 1.0,
            "speculative_accept_threshold_acc": 1.0,
            "version": "fake",
            "engine": "fake",
        }
        self._send_json(200, info | {k: json.loads(v) for k, v in options.lie})

    def _generate(self, body: dict[str, Any]) -> None:
        fault = self.state.next_fault()
        prompt_tokens = len(body["input_ids"])
        answer = Answer(self.state, prompt_tokens, body["sampling_params"])
        if self._failed_whole(fault):
            return
        if body.get("return_logprob") and self._refuses_logprobs():
            return
        if not body.get("stream"):
            whole = self._generate_body(answer, answer.length, fault)
            if body.get("return_logprob"):
                whole["meta_info"]["output_top_logprobs"] = answer.top_logprobs()
            self._send_json(200, whole)
            return
        bodies = (self._generate_body(answer, n, fault) for n in answer.steps())
        self._stream(bodies, fault)

    def _refuses_logprobs(self) -> bool:
        """Whether the server drafts, and has therefore refused."""
        if self.state.speculative:
            said = "speculative decoding does not support return_logprob"
            self._send_json(400, {"error": {"message": said}})
        return self.state.speculative

    def _generate_body(self, answer: Answer, tokens: int, fault: str | None) -> dict[str, Any]:
        meta = answer.meta(tokens)
        if fault == "no-usage":
            del meta["completion_tokens"], meta["prompt_tokens"]
        if fault == "no-tokens":
            tokens = meta["completion_tokens"] = 0
        if fault == "bad-counts" and "spec_verify_ct" in meta:
            meta["spec_verify_ct"] += 1
        body = {"text": answer.text(tokens), "output_ids": answer.ids[:tokens], "meta_info": meta}
        return {k: v for k, v in body.items() if not (fault == "no-ids" and k == "output_ids")}

    def _chat(self, body: dict[str, Any]) -> None:
        fault = self.state.next_fault()
        prompt_tokens = sum(len(m["content"]) for m in body["messages"])
        limit = body.get("max_tokens") or body.get("max_completion_tokens")
        sampling = {"max_new_tokens": limit, "ignore_eos": body.get("ignore_eos")}
        answer = Answer(self.state, prompt_tokens, sampling)
        if self._failed_whole(fault):
            return
        if body.get("stream"):
            self._stream(self._chat_chunks(answer, fault), fault)
            return
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": answer.text(answer.length)},
            "finish_reason": answer.finish()["type"],
            "meta_info": answer.meta(answer.length),
        }
        reply = {"object": "chat.completion", "choices": [choice]}
        self._send_json(200, reply | self._usage(answer, answer.length, fault))

    def _chat_chunks(self, answer: Answer, fault: str | None) -> Iterator[dict[str, Any]]:
        shown = ""
        for tokens in answer.steps():
            new, shown = answer.text(tokens)[len(shown) :], answer.text(tokens)
            reason = answer.finish()["type"] if tokens == answer.length else None
            choice = {"index": 0, "delta": {"content": new}, "finish_reason": reason}
            chunk = {"object": "chat.completion.chunk", "choices": [choice]}
            yield chunk | self._usage(answer, tokens, fault)
        yield {"object": "chat.completion.chunk", "choices": []} | self._usage(
            answer, answer.length, fault
        )

    def _usage(self, answer: Answer, tokens: int, fault: str | None) -> dict[str, Any]:
        if fault == "no-usage":
            return {}
        if fault == "no-tokens":
            tokens = 0
        total = answer.prompt_tokens + tokens
        return {
            "usage": {
                "prompt_tokens": answer.prompt_tokens,
                "completion_tokens": tokens,
                "total_tokens": total,
            }
        }

    def _failed_whole(self, fault: str | None) -> bool:
        """Whether a fault has answered (or ended) the request before its first token."""
        if fault == "http500":
            self._send_json(500, {"error": {"message": "fake fault", "code": 500}})
        elif fault == "garbage":
            self._send(200, b"\xff<html>not what was asked</html>")
        return fault in ("http500", "garbage")

    def _stream(self, bodies: Iterator[dict[str, Any]], fault: str | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for place, body in enumerate(bodies):
            if place == 1 and self._ended_by(fault):
                return
            self._chunk(b"data: " + json.dumps(body).encode() + b"\n\n")
            time.sleep(self.state.options.step_s)
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _ended_by(self, fault: str | None) -> bool:
        """Whether a fault ends a stream after its first event."""
        if fault in ("die", "oom", "crash"):
            if fault == "crash":
                say(CRASH)
                say("SIGQUIT received. signum=None, frame=None.")
            elif fault == "oom":
                print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
            else:
                print("RuntimeError: fake kernel failed")
            sys.stdout.flush()
            os._exit(7)
        if fault == "hang":
            threading.Event().wait()
        if fault == "stream-error":
            self._chunk(b'data: {"error": {"message": "fake fault", "code": 500}}\n\n')
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")
        if fault == "truncate":
            self.close_connection = True
        return fault in ("stream-error", "truncate")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send_json(self, status: int, body: object) -> None:
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the log holds what the server says, not who asked."""


def print_file(path: Path) -> None:
    """Print a recorded log as if it were written now."""
    now = f"[{datetime.now():%Y-%m-%d %H:%M:%S}]"
    text = path.read_text(encoding="utf-8")
    print(re.sub(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]", now, text, flags=re.MULTILINE))


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


def _said(text: str) -> tuple[str, str]:
    line, _, number = text.rpartition("@")
    return line, number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--model-path", "--speculative-algorithm", "--speculative-draft-model-path"):
        parser.add_argument(flag)
    for flag in ("--dflash-block-size", "--ddtree-budget", "--ddtree-topk-cap"):
        parser.add_argument("--speculative" + flag[1:], type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", default="fake")
    parser.add_argument("--fault", action="append", default=[], metavar="KIND@N[+]")
    parser.add_argument("--fault-once", type=Path, metavar="FILE")
    parser.add_argument("--die-at-start", type=int, metavar="EXIT_CODE")
    parser.add_argument("--flushed", type=Path, metavar="FILE", help="made by a flush")
    parser.add_argument("--print-file", type=Path, help="printed at start, its stamps renewed")
    parser.add_argument("--say", action="append", default=[], type=_said, metavar="TEXT@N")
    parser.add_argument("--device", help="taken for the pipeline's sake")
    parser.add_argument("--api-key", help="refuse requests without it")
    parser.add_argument("--never-ready", action="store_true", help="/health answers 503")
    parser.add_argument("--lie", action="append", default=[], type=_pair, metavar="FACT=JSON")
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--detach-child", type=Path, metavar="PIDFILE", help="by setsid")
    parser.add_argument("--print-bytes", type=int, default=0)
    parser.add_argument("--cached", type=int, default=0, help="cached prompt tokens to report")
    parser.add_argument("--tokens", type=int, default=12, help="tokens until the stop token")
    parser.add_argument("--eos", type=int, default=2)
    parser.add_argument("--step-s", type=float, default=0.001)
    return parser


def main(arguments: list[str]) -> None:
    """Serve until killed."""
    options = _parser().parse_args(arguments)
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.detach_child is not None:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        options.detach_child.write_text(str(child.pid))
    print("x" * options.print_bytes, flush=True)
    if options.print_file is not None:
        print_file(options.print_file)
    if options.die_at_start is not None and armed(options):
        if options.print_file is None:
            print("RuntimeError: fake weights are missing", flush=True)
        sys.exit(options.die_at_start)
    Handler.state = State(options)
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    server.daemon_threads = True
    say("The server is fired up and ready to roll!")
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
