"""Starts SGLang servers side by side on one GPU, and asks them.

Servers that are compared run at the same time and are asked in turn: what changes on the machine
between two launches then falls on both.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
from ddtree_bench.errors import MachineError  # noqa: E402
from ddtree_bench.server.process import Command, ServerProcess, free_port  # noqa: E402

TREE, CHAIN = "ddtree-b15-k8", "dflash-b16"
"""What `Launch.tree` and `Launch.chain` call their servers unless told otherwise."""
COMMON_ARGS = (
    "--dtype bfloat16 --attention-backend triton --sampling-backend pytorch "
    "--grammar-backend none --disable-custom-all-reduce --random-seed 0 "
    "--max-running-requests 48 --mem-fraction-static 0.9 --max-total-tokens 131072 --sleep-on-idle"
)
"""The memory of servers that start together: SGLang wants a share of it left free for all, and a
count of tokens for itself. An idle server sleeps, or it would take a core from the busy one."""
TOGETHER = {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "false"}
"""Two ranks do not find their GPUs equally empty where other servers are on one of them."""
START_PATIENCE_S = 240.0

JsonObject = dict[str, object]


class CheckError(Exception):
    """A server did not start, or did not answer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One server: its name in the report and its arguments after the common ones."""

    name: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """What all servers of a run have in common."""

    target: str
    drafter: str
    out: Path
    common: str = COMMON_ARGS
    python: str = sys.executable
    start_s: float = START_PATIENCE_S

    def chain(self, block: int = 16, *more: str, label: str = "") -> Plan:
        """A DFLASH server; named with `label`."""
        flags = ("--speculative-algorithm", "DFLASH", *self._draft(block))
        return Plan(f"dflash-b{block}{label}", (*flags, *more))

    def tree(
        self, budget: int = 15, topk: int = 8, block: int = 16, *more: str, label: str = ""
    ) -> Plan:
        """A DDTREE server; named with its block where that is not 16, and with `label`."""
        sizes = ("--speculative-ddtree-budget", str(budget), "--speculative-ddtree-topk-cap")
        flags = ("--speculative-algorithm", "DDTREE", *self._draft(block), *sizes, str(topk))
        name = f"ddtree-b{budget}-k{topk}" + (f"-block{block}" if block != 16 else "") + label
        return Plan(name, (*flags, *more))

    def plain(self, *more: str, label: str = "") -> Plan:
        """A server without speculation; named with `label`."""
        return Plan(f"ar{label}", more)

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
def serving(
    plans: Sequence[Plan], launch: Launch
) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """URLs by name of the servers that answer, and what is wrong with those that do not.

    They start side by side and end with the block, or with this process however it ends.
    """
    urls: dict[str, str] = {}
    faults: dict[str, str] = {}
    with ExitStack() as stack:
        started = [(plan, stack.enter_context(_running(plan, launch))) for plan in plans]
        deadline_s = time.monotonic() + launch.start_s
        for plan, process in started:
            if _answers(process, deadline_s):
                urls[plan.name] = f"http://127.0.0.1:{process.port}"
            else:
                faults[plan.name] = log_text(plan.name, launch)[-3000:]
        yield urls, faults


@contextmanager
def _running(plan: Plan, launch: Launch) -> Iterator[ServerProcess]:
    """A server that is started and stopped.

    That its port is taken afterwards is no fault here: a neighbour may have got the number.
    """
    process = _process(plan, launch)
    try:
        process.start()
        yield process
    finally:
        try:
            process.stop()
        except MachineError as error:
            print(f"{plan.name}: {error}", file=sys.stderr, flush=True)


def _process(plan: Plan, launch: Launch) -> ServerProcess:
    """A server that is not started yet."""
    port = free_port()
    argv = [launch.python, "-m", "sglang.launch_server", "--model-path", launch.target]
    argv += ["--port", str(port), *launch.common.split(), *plan.args]
    paths = [str(ROOT / "src"), str(ROOT / "src/ddtree_sglang/site")]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | TOGETHER
    log = launch.out / f"{plan.name}.log"
    return ServerProcess(Command(tuple(argv), env), log, port, grace_s=1.0)


def _answers(process: ServerProcess, deadline_s: float) -> bool:
    """Whether a server answers before the deadline; False as soon as it has ended."""
    while process.exit_code() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{process.port}/health", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.5)
    return False


def log_text(name: str, launch: Launch) -> str:
    """What a server has written."""
    return (launch.out / f"{name}.log").read_text(encoding="utf-8", errors="replace")
