"""Starts SGLang servers side by side on one GPU, and asks them.

Servers that are compared run at the same time and are asked in turn: what changes on the machine
between two launches then falls on both.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIRST_PORT = 31900
COMMON_ARGS = (
    "--dtype bfloat16 --attention-backend triton --sampling-backend pytorch "
    "--grammar-backend none --disable-custom-all-reduce --random-seed 0 "
    "--max-running-requests 48 --mem-fraction-static 0.6 --max-total-tokens 262144"
)
"""The last two: SGLang takes a share of what is free when it starts, so servers that start together
would take each other's; a count of tokens is theirs alone."""
START_PATIENCE_S = 240.0

JsonObject = dict[str, object]


class CheckError(Exception):
    """A server did not start, or did not answer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One server: its name in the report and its arguments after the common ones."""

    name: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    """What all servers of a run have in common."""

    target: str
    drafter: str
    out: Path
    common: str = COMMON_ARGS

    def chain(self, block: int = 16, *more: str) -> Plan:
        """A DFLASH server."""
        flags = ("--speculative-algorithm", "DFLASH", *self._draft(block))
        return Plan(f"dflash-b{block}", (*flags, *more))

    def tree(self, budget: int = 15, topk: int = 8, block: int = 16, *more: str) -> Plan:
        """A DDTREE server; named with its block where that is not 16."""
        sizes = ("--speculative-ddtree-budget", str(budget), "--speculative-ddtree-topk-cap")
        flags = ("--speculative-algorithm", "DDTREE", *self._draft(block), *sizes, str(topk))
        name = f"ddtree-b{budget}-k{topk}" + (f"-block{block}" if block != 16 else "")
        return Plan(name, (*flags, *more))

    def plain(self) -> Plan:
        """A server without speculation."""
        return Plan("ar")

    def _draft(self, block: int) -> tuple[str, ...]:
        path = ("--speculative-draft-model-path", self.drafter)
        return (*path, "--speculative-dflash-block-size", str(block))


def post(url: str, body: JsonObject, timeout_s: float = 120.0) -> JsonObject:
    """The JSON answer of a server; `{}` where it is none."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        text = response.read()
    return json.loads(text) if text.startswith(b"{") else {}


@contextmanager
def serving(plans: Sequence[Plan], launch: Launch) -> Iterator[dict[str, str]]:
    """URL by name of servers that all answer; they start side by side and end with the block.

    Raises:
        CheckError: one ended or was too slow; says what its log says.
    """
    launch.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        started = [
            (plan, FIRST_PORT + place, stack.enter_context(_process(plan, place, launch)))
            for place, plan in enumerate(plans)
        ]
        for plan, port, process in started:
            _wait_until_ready(plan, port, process, launch)
        yield {plan.name: f"http://127.0.0.1:{port}" for plan, port, _ in started}


@contextmanager
def _process(plan: Plan, place: int, launch: Launch) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", launch.target]
    argv += ["--port", str(FIRST_PORT + place), *launch.common.split(), *plan.args]
    paths = [str(ROOT / "src"), str(ROOT / "src/ddtree_sglang/site")]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | plan.env
    with (launch.out / f"{plan.name}.log").open("wb") as log:
        process = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            _stop(process)


def _wait_until_ready(
    plan: Plan, port: int, process: subprocess.Popen[bytes], launch: Launch
) -> None:
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < START_PATIENCE_S:
        if process.poll() is not None:
            raise CheckError(f"{plan.name} ended while starting:\n{log_tail(plan.name, launch)}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise CheckError(f"{plan.name} did not answer:\n{log_tail(plan.name, launch)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's process group; its graphics memory is free when it has ended."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended by itself
    process.wait()


def log_tail(name: str, launch: Launch) -> str:
    """The end of a server's log."""
    text = (launch.out / f"{name}.log").read_text(encoding="utf-8", errors="replace")
    return text[-3000:]
