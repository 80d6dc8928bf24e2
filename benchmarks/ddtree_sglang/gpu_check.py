"""DDTREE on one GPU: are kernels, graphs and answers right, and what does a step cost?

    python benchmarks/ddtree_sglang/gpu_check.py --target MODEL --drafter DRAFTER --out FOLDER

Needs the Python that runs SGLang 0.5.17 on a GPU and nothing else. All servers that the chosen
parts need start side by side with the same arguments; parts that measure time then run one after
the other, and behind them, all at once, those that do not. Writes FOLDER/report.json after every
part, and a log a server. Exits 1 if a check failed, 0 otherwise; a missed target fails nothing.

| part | what it says |
| --- | --- |
| kernels | kernels equal their definitions; microseconds |
| step | one client, five classes: step time and speed of tree and chain, budget 63, losslessness |
| control | the plug-in's chain (top-k 1) against SGLang's, and against the tree |
| chains | the best chain, its block chosen on other prompts, against trees of block 16 and 8 |
| clients | 8 and 32 clients |
| context | step time behind 512, 4 096 and 8 000 tokens |
| reference | acceptance on the eval prompts, against the reference engine |
| graphs | CUDA graphs against eager runs, tree by tree |
| cuts | limits and stops inside an accepted path |
| sampling | temperature 1 against plain decoding |
| soak | 20 000 mixed requests |
| grammar | answers that a JSON schema constrains; needs xgrammar, only where it is named |
| sizes | budgets 8 to 64 with top-k 1, 4 and 8; 15 servers, only where it is named |
| hybrid | a target with recurrent layers, random weights; only where it is named |
| tp | tensor parallel 2 against 1, on two GPUs; only where it is named |

`--profile` traces a chain's and a tree's steps instead (`step_profile`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import grammar
import hybrid
import sameness
import soak
import speed
import tensor_parallel
from findings import Report
from run import Run
from servers import COMMON_ARGS, ROOT, CheckError, JsonObject, Launch, Plan, serving
from step_profile import profile_servers


@dataclass(frozen=True, slots=True)
class Part:
    """One question to the servers.

    Attributes:
        ask: answers it.
        plans: the servers that it needs.
        limit_s: seconds after which it begins nothing more.
        is_timed: whether it must have the machine for itself.
    """

    ask: Callable[[Run], JsonObject]
    plans: Callable[[Launch], list[Plan]]
    limit_s: float
    is_timed: bool = True


def kernels(run: Run) -> JsonObject:
    """Run `kernels.py` in a process of its own."""
    command = [run.launch.python, str(Path(__file__).with_name("kernels.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        run.report.check("kernels equal their definitions", False, done.stderr[-2000:])
        return {}
    found: JsonObject = json.loads(done.stdout.splitlines()[-1])
    run.report.check("kernels equal their definitions", found["wrong"] == 0, found)
    us = float(str(found["tree_us R=1 B=64 K=8"]))
    run.target_of("tree of 64 nodes, one request, µs", us, most=60.0)
    return found


def _traced(launch: Launch) -> list[Plan]:
    trace = "--speculative-ddtree-trace"
    with_graphs = launch.tree(15, 8, 16, trace, label="-traced")
    eager = launch.tree(15, 8, 16, trace, "--disable-cuda-graph", label="-traced-eager")
    return [with_graphs, eager]


def _sizes(launch: Launch) -> list[Plan]:
    return [launch.plain()] + [
        launch.tree(budget, topk, label=sameness.SIZED)
        for budget in (8, 15, 16, 32, 64)
        for topk in (1, 4, 8)
    ]


PARTS: dict[str, Part] = {
    "kernels": Part(kernels, lambda _: [], 60),
    "step": Part(speed.step, lambda on: [on.chain(), on.tree(), on.tree(63), on.plain()], 80),
    "control": Part(speed.control, lambda on: [on.chain(), on.tree(15, 1), on.tree()], 50),
    "chains": Part(
        speed.chains,
        lambda on: [on.chain(4), on.chain(8), on.chain(), on.tree(), on.tree(7, 8, 8)],
        60,
    ),
    "clients": Part(speed.clients, lambda on: [on.chain(), on.tree()], 80),
    "context": Part(speed.context, lambda on: [on.chain(), on.tree()], 150),
    "reference": Part(sameness.reference, lambda on: [on.chain(), on.tree()], 60),
    "graphs": Part(sameness.graphs, _traced, 60, is_timed=False),
    "cuts": Part(sameness.cuts, _traced, 30, is_timed=False),
    "sampling": Part(sameness.sampling, lambda on: [on.plain(), on.tree()], 60, is_timed=False),
    "soak": Part(soak.soak, lambda on: [on.tree()], 150, is_timed=False),
    "grammar": Part(grammar.constrained, grammar.plans, 60, is_timed=False),
    "sizes": Part(sameness.sizes, _sizes, 150, is_timed=False),
    "hybrid": Part(hybrid.compare, hybrid.plans, 120, is_timed=False),
    "tp": Part(tensor_parallel.compare, tensor_parallel.plans, 120),
}
NOT_UNASKED = ("grammar", "sizes", "hybrid", "tp")
"""Parts that need another library, a run of their own or another machine."""


def run_parts(names: Sequence[str], launch: Launch, options: argparse.Namespace) -> Report:
    """Start what the parts need and run them; the report is written after each."""
    report, begun_s = Report(), time.monotonic()
    plans = {plan.name: plan for name in names for plan in PARTS[name].plans(launch)}
    with serving(list(plans.values()), launch) as (urls, faults):
        report.machine = {"ready_s": time.monotonic() - begun_s, "python": sys.version}
        print(f"{len(urls)} servers after {time.monotonic() - begun_s:.0f} s", flush=True)
        for name, why in faults.items():
            report.check(f"{name} starts", False, why)

        def one(name: str) -> None:
            _run_part(name, launch, urls, report, options, begun_s)

        for name in names:
            if PARTS[name].is_timed:
                one(name)
        untimed = [name for name in names if not PARTS[name].is_timed]
        with ThreadPoolExecutor(max(len(untimed), 1)) as pool:
            list(pool.map(one, untimed))
    report.machine["seconds"] = time.monotonic() - begun_s
    report.write(launch.out)
    return report


def _run_part(
    name: str,
    launch: Launch,
    urls: dict[str, str],
    report: Report,
    options: argparse.Namespace,
    begun_s: float,
) -> None:
    part, now_s = PARTS[name], time.monotonic()
    deadline_s = min(now_s + part.limit_s * options.patience, begun_s + options.limit_s)
    if deadline_s <= now_s:
        report.parts[name] = {"skipped": f"{options.limit_s:.0f} s are over"}
        return
    run = Run(launch, urls, report, options.prompts, options.requests, deadline_s)
    print(f"--- {name}", flush=True)
    try:
        found = part.ask(run)
    except (CheckError, OSError, KeyError, ValueError, ZeroDivisionError) as error:
        report.check(f"{name}: runs", False, repr(error)[:2000])
        found = {}
    report.parts[name] = found | {"seconds": time.monotonic() - now_s}
    report.write(launch.out)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", required=True)
    parser.add_argument("--drafter", required=True)
    parser.add_argument("--out", type=Path, default=Path("gpu-check"))
    parser.add_argument("--parts", default=",".join(n for n in PARTS if n not in NOT_UNASKED))
    parser.add_argument("--limit-s", type=float, default=530.0, help="begin nothing after it")
    parser.add_argument("--prompts", type=int, default=8, help="a class")
    parser.add_argument("--requests", type=int, default=20_000, help="of the soak")
    parser.add_argument("--patience", type=float, default=1.0, help="times each part's limit")
    parser.add_argument("--server-args", default=COMMON_ARGS)
    parser.add_argument("--start-s", type=float, default=240.0, help="patience with servers")
    parser.add_argument("--python", default=sys.executable, help="runs the servers")
    parser.add_argument("--profile", action="store_true", help="trace steps, nothing else")
    return parser.parse_args(argv)


def main() -> int:
    """Run the chosen parts; return the exit status."""
    os.chdir(ROOT)
    options = parse()
    launch = Launch(
        options.target,
        options.drafter,
        options.out,
        options.server_args,
        options.python,
        options.start_s,
    )
    if options.profile:
        profile_servers(launch, [launch.chain(), launch.tree()])
        return 0
    names = options.parts.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.exit(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    report = run_parts(names, launch, options)
    missed = [str(row["figure"]) for row in report.targets if row["met"] is False]
    print(f"targets missed: {'; '.join(missed) or 'none'}")
    return 0 if all(check["passed"] for check in report.checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
