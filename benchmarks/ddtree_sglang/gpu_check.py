"""DDTREE on one GPU: are the kernels right, are graphs right, and what does a step cost?

Needs the Python that runs SGLang 0.5.17 on a GPU and nothing else; takes at most 8 minutes.

    python benchmarks/ddtree_sglang/gpu_check.py --target MODEL --drafter DRAFTER --out FOLDER

Servers run one after the other with the same arguments: DDTREE, the same without CUDA graphs,
DFLASH, plain decoding, then more tree sizes while there is time. `--url NAME=URL` measures a server
that runs already instead of starting one. Writes FOLDER/report.json after every server, and a log
a server. Exits 1 if a check failed, 0 otherwise; speeds are never a check.
`--profile` traces a chain's and a tree's steps instead (`step_profile`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from servers import Launch
from step_profile import profile_servers

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ROOT / "benchmarks/eval-prompts.json"
SERVER_ARGS = "--attention-backend triton --disable-custom-all-reduce --max-running-requests 48"
PORT = 31900
GRAPHS, EAGER, PLAIN = "ddtree-b15-k8", "ddtree-b15-k8-eager", "ar"
MAX_NEW_TOKENS = 128
CLIENTS = (1, 8, 32)
REQUESTS = {1: 16, 8: 48, 32: 128}
START_PATIENCE_S = 150.0
NEAR_TIE_NATS = 0.5
"""How far behind plain decoding's first choice a token may be: bf16 rounds by batch shape."""
MOST_SURPRISES = 0.02
"""Share of tokens further behind than that which still passes."""
DRAWS, DRAWN_TOKENS = 256, 4
MOST_DISTANCE = 0.25
"""Half the summed differences of two samples' shares. Of at most 8 tokens and 256 draws each,
chance gives about 0.1 ± 0.03."""
LEAST_ACCEPTANCE_RATIO = 0.95
"""With graphs over without; a tree verified as a chain loses more."""

TREE_SIZES = (
    (1, 16, 8),
    (8, 9, 4),
    (32, 16, 8),
    (1, 65, 8),
    (48, 65, 8),
    (32, 33, 1),
    (1, 256, 16),
)
"""Requests, nodes with the root, candidates a depth."""
HEAD_SIZES = ((15, 49152), (120, 49152), (15, 151936), (480, 151936))
"""Rows and vocabulary; 15 rows a request."""

JsonObject = dict[str, object]


class CheckError(Exception):
    """A server did not start, or did not answer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One server: its name in the report and its arguments after the common ones."""

    name: str
    args: tuple[str, ...] = ()
    url: str | None = None


@dataclass(slots=True)
class Answer:
    """What one request gave."""

    ids: list[int]
    steps: int
    accepted: int
    fields: JsonObject


@dataclass(slots=True)
class Report:
    """All that was found; written after every stage."""

    machine: JsonObject = field(default_factory=dict)
    kernels: JsonObject = field(default_factory=dict)
    servers: dict[str, JsonObject] = field(default_factory=dict)
    checks: dict[str, JsonObject] = field(default_factory=dict)

    def check(self, name: str, passed: bool, found: object) -> None:
        """Record one check and print it."""
        self.checks[name] = {"passed": passed, "found": found}
        print(f"{'ok    ' if passed else 'FAILED'} {name}: {found}", flush=True)

    def write(self, folder: Path) -> None:
        """Write report.json."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), indent=1)
        (folder / "report.json").write_text(text + "\n", encoding="utf-8")


# --- requests


def post(url: str, body: JsonObject, timeout_s: float = 120.0) -> JsonObject:
    """The JSON answer of a server."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        answer: JsonObject = json.load(response)
    return answer


def load_prompts() -> list[str]:
    """The eval prompts as ChatML, in the file's order."""
    groups = json.loads(PROMPTS.read_text(encoding="utf-8"))
    questions = [question for group in groups.values() for question in group]
    return [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in questions]


def ask(url: str, prompt: str, **sampling: object) -> Answer:
    """One answer; greedy unless `sampling` says otherwise."""
    settings = {"temperature": 0, "max_new_tokens": MAX_NEW_TOKENS} | sampling
    answer = post(f"{url}/generate", {"text": prompt, "sampling_params": settings})
    meta = answer["meta_info"]
    assert isinstance(meta, dict)
    ids = answer["output_ids"]
    assert isinstance(ids, list)
    known = {key: meta[key] for key in meta if key.startswith(("spec_", "ddtree_"))}
    steps, accepted = meta.get("spec_verify_ct", 0), meta.get("spec_num_correct_drafts", 0)
    return Answer(ids, steps, accepted, known)


def surprises(url: str, prompt: str, ids: Sequence[int]) -> list[float]:
    """By how many nats each token of an answer is behind plain decoding's first choice."""
    prompt_ids = post(f"{url}/tokenize", {"prompt": prompt})["tokens"]
    assert isinstance(prompt_ids, list)
    body = {
        "input_ids": [*prompt_ids, *ids],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "logprob_start_len": len(prompt_ids) - 1,
        "top_logprobs_num": 1,
    }
    meta = post(f"{url}/generate", body)["meta_info"]
    assert isinstance(meta, dict)
    taken = [entry[0] for entry in meta["input_token_logprobs"]][-len(ids) :]
    best = [places[0][0] for places in meta["input_top_logprobs"][-len(ids) :]]
    return [b - t for b, t in zip(best, taken, strict=True)]


# --- servers


def environment() -> dict[str, str]:
    """This process's, with the plug-in where SGLang finds it."""
    paths = [str(ROOT / "src"), str(ROOT / "src/ddtree_sglang/site")]
    return os.environ | {"PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}


@contextmanager
def running(plan: Plan, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """The URL of a server that answers, and the seconds until it did."""
    if plan.url is not None:
        yield plan.url, 0.0
        return
    argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", options.target]
    argv += ["--port", str(PORT), *options.server_args.split(), *plan.args]
    with (options.out / f"{plan.name}.log").open("wb") as log:
        process = subprocess.Popen(
            argv, env=environment(), stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield f"http://127.0.0.1:{PORT}", wait_until_ready(process)
        finally:
            stop(process)


def wait_until_ready(process: subprocess.Popen[bytes]) -> float:
    """Seconds until the server answered; raises CheckError if it died or was too slow."""
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < START_PATIENCE_S:
        if process.poll() is not None:
            raise CheckError(f"server ended with {process.returncode} while starting")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5):
                return time.monotonic() - begun_s
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise CheckError(f"server did not answer within {START_PATIENCE_S:.0f} s")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's process group; its graphics memory is free when it has ended."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended by itself
    process.wait()


# --- measurements


def measure(url: str, prompts: Sequence[str], clients: int) -> tuple[JsonObject, list[Answer]]:
    """Speed and acceptance of a closed loop, and the answers in the order of the requests."""
    load = [prompts[i % len(prompts)] for i in range(REQUESTS[clients])]
    begun_s = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda prompt: ask(url, prompt), load))
    wall_s = time.perf_counter() - begun_s
    tokens = sum(len(answer.ids) for answer in answers)
    steps = sum(answer.steps for answer in answers)
    accepted = sum(answer.accepted for answer in answers)
    return {
        "tok_per_s": tokens / wall_s,
        "acceptance_length": (accepted + steps) / steps if steps > 0 else None,
        "step_s": wall_s * clients / (steps if steps > 0 else tokens),
        "tokens": tokens,
        "verify_steps": steps,
        "wall_s": wall_s,
    }, answers


def same_share(some: Sequence[Answer], others: Sequence[Answer]) -> float:
    """Share of answers with equal token ids, in the order of the shorter list."""
    pairs = list(zip(some, others, strict=False))
    return sum(a.ids == b.ids for a, b in pairs) / len(pairs)


def check_counts(report: Report, name: str, answers: Sequence[Answer]) -> None:
    """The tree's fields agree with SGLang's own counts."""
    wrong = [answer.fields for answer in answers if not _counts_agree(answer)]
    report.check(f"{name}: counts agree", not wrong, f"{len(wrong)} of {len(answers)} wrong")


def _counts_agree(answer: Answer) -> bool:
    by_rank, by_depth, nodes = (
        answer.fields[f"ddtree_{what}"]
        for what in ("accepted_by_rank", "accepted_by_depth", "nodes_by_depth")
    )
    assert isinstance(by_rank, list)
    assert isinstance(by_depth, list)
    assert isinstance(nodes, list)
    width = answer.fields["ddtree_verify_width"]
    assert isinstance(width, int)
    most_nodes = answer.steps * (width - 1)
    return sum(by_rank) == sum(by_depth) == answer.accepted and 0 < sum(nodes) <= most_nodes


def check_behaviour(report: Report, name: str, url: str, prompt: str) -> None:
    """Limits and stops inside an accepted path cut exactly there."""
    whole = ask(url, prompt).ids
    cuts = [ask(url, prompt, max_new_tokens=n).ids == whole[:n] for n in range(1, 25)]
    report.check(f"{name}: length limits", all(cuts), f"{sum(cuts)} of {len(cuts)} exact")
    stops = [
        ask(url, prompt, stop_token_ids=[token]).ids == whole[: whole.index(token) + 1]
        for token in dict.fromkeys(whole[:16])
    ]
    report.check(f"{name}: stop tokens", all(stops), f"{sum(stops)} of {len(stops)} exact")


def draw(url: str, prompt: str) -> list[Counter[int]]:
    """Counts of sampled tokens at each place after the first, which is the prefill's."""
    settings = {"temperature": 1.0, "top_k": 8, "max_new_tokens": DRAWN_TOKENS}
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: ask(url, prompt, **settings).ids, range(DRAWS)))
    return [
        Counter(ids[place] for ids in answers if len(ids) > place)
        for place in range(1, DRAWN_TOKENS)
    ]


def compare_draws(report: Report, tree: list[Counter[int]], plain: list[Counter[int]]) -> None:
    """Sampling through a tree has the target's distribution, whatever was drafted."""
    distances = [
        sum(abs(a[token] / a.total() - b[token] / b.total()) for token in a | b) / 2
        for a, b in zip(tree, plain, strict=True)
    ]
    report.check(
        "sampled tokens are distributed as plain decoding's",
        max(distances) <= MOST_DISTANCE,
        distances,
    )


def observe(plan: Plan, options: argparse.Namespace, report: Report) -> dict[int, list[Answer]]:
    """Start one server, measure it, keep its answers by number of clients."""
    prompts, kept = load_prompts(), {}
    with running(plan, options) as (url, ready_s):
        found: JsonObject = {"args": list(plan.args), "ready_s": ready_s}
        report.servers[plan.name] = found
        for prompt in prompts[:4]:
            ask(url, prompt)  # warm: kernels are compiled at first use
        for clients in CLIENTS:
            found[f"clients_{clients}"], kept[clients] = measure(url, prompts, clients)
            print(plan.name, clients, found[f"clients_{clients}"], flush=True)
        for clients in CLIENTS[1:]:
            share = same_share(kept[1], kept[clients])
            found[f"same_ids_at_{clients}_clients"] = share
        if plan.name.startswith("ddtree"):
            check_counts(report, plan.name, [a for some in kept.values() for a in some])
            check_behaviour(report, plan.name, url, prompts[0])
        if plan.name in (GRAPHS, PLAIN):
            options.draws[plan.name] = draw(url, prompts[1])
        if plan.name == PLAIN:
            judge(report, url, prompts, options.answers)
    return kept


def judge(
    report: Report, url: str, prompts: Sequence[str], answers: dict[str, list[Answer]]
) -> None:
    """Hold the answers of the other servers against plain decoding."""
    for name, given in answers.items():
        behind = [
            nats
            for prompt, answer in zip(prompts[:8], given, strict=False)
            for nats in surprises(url, prompt, answer.ids)
        ]
        share = sum(nats > NEAR_TIE_NATS for nats in behind) / len(behind)
        report.check(f"{name}: tokens are plain decoding's choice", share <= MOST_SURPRISES, share)


def compare_graphs(report: Report, graphs: list[Answer], eager: list[Answer]) -> None:
    """A graph that lost the mask verifies a chain: acceptance falls and texts differ."""

    def acceptance(answers: Sequence[Answer]) -> float:
        steps = sum(answer.steps for answer in answers)
        return (steps + sum(answer.accepted for answer in answers)) / steps

    ratio = acceptance(graphs) / acceptance(eager)
    report.check("graphs accept as eager", ratio >= LEAST_ACCEPTANCE_RATIO, ratio)
    report.servers[GRAPHS]["same_ids_as_eager"] = same_share(graphs, eager)


# --- kernels, in a process of their own


def time_us(call: object, repeats: int = 200) -> float:
    """Microseconds of device time a call, launched from a CUDA graph so that the host is out."""
    import torch

    assert callable(call)
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's own
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    graph.replay()
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / repeats


def check_trees(requests: int, width: int, topk: int) -> tuple[int, float]:
    """Differences of the tree kernel from its definition, and its microseconds."""
    import torch

    from ddtree_sglang import buffers, tree, tree_kernel

    log_probs = torch.randn(requests, 15, topk, device="cuda").mul(3).log_softmax(-1)
    log_probs = log_probs.mul(4).round().div(4).sort(-1, descending=True).values  # with ties
    tokens = torch.randint(0, 50000, log_probs.shape, device="cuda")
    bonus = torch.randint(0, 50000, (requests,), device="cuda")
    prefix = torch.randint(1, 5000, (requests,), device="cuda")
    cells = int((width * (prefix + width)).sum())
    mask, wanted_mask = (torch.zeros(cells, dtype=torch.uint8, device="cuda") for _ in range(2))
    step = buffers.StepBuffers(requests, width, 15, topk, 15, mask.device).next(requests)
    wanted = tree.grow_trees(log_probs, tokens, bonus, width)
    tree.write_full_mask(tree.ancestor_mask(wanted), prefix, wanted_mask)

    def grow() -> None:
        tree_kernel.grow_trees_on_gpu(log_probs, tokens, bonus, prefix, mask, step, full_mask=True)

    grow()
    fields = ("tokens", "parents", "depths", "ranks", "scores", "children", "siblings")
    pairs = [(getattr(step.trees, name), getattr(wanted, name)) for name in fields]
    pairs += [(mask, wanted_mask), (step.positions, prefix[:, None] + wanted.depths)]
    pairs += [(step.counts[:, :16], tree.count_nodes(wanted, 15))]
    return sum(not torch.equal(x, y) for x, y in pairs), time_us(grow)


def check_candidates(rows: int, vocabulary: int) -> tuple[int, float, float]:
    """Differences of the candidate kernel from its definition, its microseconds, and torch's."""
    import torch

    from ddtree_sglang import candidates, candidates_kernel

    logits = torch.randn(rows, vocabulary, device="cuda").bfloat16()
    log_probs = torch.empty(rows, 8, device="cuda")
    ids = torch.empty(rows, 8, dtype=torch.int64, device="cuda")

    def rank() -> None:
        candidates_kernel.top_candidates_on_gpu(logits, log_probs, ids)

    def rank_by_torch() -> None:
        logits.topk(8)
        logits.float().logsumexp(-1)

    rank()
    wanted, wanted_ids = candidates.top_candidates(logits, 8)
    wrong = int(not torch.equal(ids, wanted_ids))
    wrong += not torch.allclose(log_probs, wanted, atol=1e-4)
    return wrong, time_us(rank, 50), time_us(rank_by_torch, 50)


def check_kernels() -> JsonObject:
    """Differences of all kernels from their definitions in torch, and times."""
    import torch

    sys.path.insert(0, str(ROOT / "src"))
    torch.manual_seed(0)
    found: JsonObject = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    wrong = 0
    for requests, width, topk in TREE_SIZES:
        differences, us = check_trees(requests, width, topk)
        wrong += differences
        found[f"tree_us R={requests} B={width - 1} K={topk}"] = us
    for rows, vocabulary in HEAD_SIZES:
        differences, us, torch_us = check_candidates(rows, vocabulary)
        wrong += differences
        found[f"candidates_us rows={rows} V={vocabulary}"] = us
        found[f"torch_topk_us rows={rows} V={vocabulary}"] = torch_us
    found["wrong"] = wrong
    return found


# --- the whole


def plans(options: argparse.Namespace) -> list[Plan]:
    """The servers in order: what the checks need first, more tree sizes last."""
    drafter = ("--speculative-draft-model-path", options.drafter)

    def tree(budget: int, topk: int) -> tuple[str, ...]:
        sizes = ("--speculative-ddtree-budget", str(budget), "--speculative-ddtree-topk-cap")
        return ("--speculative-algorithm", "DDTREE", *drafter, *sizes, str(topk))

    wanted = [
        Plan(GRAPHS, tree(15, 8)),
        Plan(EAGER, (*tree(15, 8), "--disable-cuda-graph")),
        Plan("dflash", ("--speculative-algorithm", "DFLASH", *drafter)),
        Plan(PLAIN),
        Plan("ddtree-b8-k8", tree(8, 8)),
        Plan("ddtree-b64-k8", tree(64, 8)),
        Plan("ddtree-b15-k1", tree(15, 1)),
    ]
    urls = dict(item.split("=", 1) for item in options.url)
    return [Plan(p.name, p.args, urls.get(p.name)) for p in wanted if not urls or p.name in urls]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", default="")
    parser.add_argument("--drafter", default="")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"))
    parser.add_argument("--server-args", default=SERVER_ARGS)
    parser.add_argument("--url", action="append", default=[], metavar="NAME=URL")
    parser.add_argument("--only", action="append", default=[], help="a server; may be repeated")
    parser.add_argument("--limit-s", type=float, default=480.0)
    parser.add_argument("--kernels-only", action="store_true")
    parser.add_argument("--profile", action="store_true", help="trace steps, nothing else")
    parser.add_argument("--print-kernels", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def kernels_stage(report: Report) -> None:
    """Run the kernels' part in a process of its own, so that the servers have the whole GPU."""
    command = [sys.executable, __file__, "--print-kernels"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode != 0:
        report.check("kernels equal their definitions", False, done.stderr[-2000:])
        return
    report.kernels = json.loads(done.stdout.splitlines()[-1])
    report.check("kernels equal their definitions", report.kernels["wrong"] == 0, report.kernels)


def main() -> int:
    """Run everything that fits into the limit; return the exit status."""
    options = parse()
    if options.print_kernels:
        print(json.dumps(check_kernels()))
        return 0
    if options.profile:
        launch = Launch(options.target, options.drafter, options.out)
        profile_servers(launch, [launch.chain(), launch.tree()])
        return 0
    begun_s, report = time.monotonic(), Report()
    options.out.mkdir(parents=True, exist_ok=True)
    options.answers, options.draws = {}, {}
    if not options.url:
        kernels_stage(report)
    report.write(options.out)
    longest_s = 0.0
    for plan in [] if options.kernels_only else plans(options):
        if options.only and plan.name not in options.only:
            continue
        left_s = options.limit_s - (time.monotonic() - begun_s)
        if left_s < longest_s:
            report.servers[plan.name] = {"skipped": f"{left_s:.0f} s left"}
            continue
        stage_s = time.monotonic()
        try:
            options.answers[plan.name] = observe(plan, options, report)[1]
        except (CheckError, OSError, KeyError) as error:
            report.check(f"{plan.name}: runs", False, repr(error))
        longest_s = max(longest_s, time.monotonic() - stage_s)
        report.servers.setdefault(plan.name, {})["stage_s"] = time.monotonic() - stage_s
        if plan.name == EAGER and {GRAPHS, EAGER} <= options.answers.keys():
            compare_graphs(report, options.answers[GRAPHS], options.answers[EAGER])
        if plan.name == PLAIN and {GRAPHS, PLAIN} <= options.draws.keys():
            compare_draws(report, options.draws[GRAPHS], options.draws[PLAIN])
        report.write(options.out)
    report.machine = {"seconds": time.monotonic() - begun_s, "python": sys.version}
    report.write(options.out)
    return 0 if all(check["passed"] for check in report.checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
