"""Where a decode step's time goes: SGLang's own profiler, its traces reduced to a page a server.

    python benchmarks/ddtree_sglang/step_profile.py --target MODEL --drafter DRAFTER --out FOLDER

One request is answered; in its middle some steps are traced, once for the figures and once more
with Python's stack for the names of functions (tracing those slows the host down several times).
Writes FOLDER/profile-NAME.{json,txt}. A step begins where SGLang hands a result to the copy that
brings it to the host (`copy_result_to_cpu`); a trace without that mark is taken as a whole.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from servers import COMMON_ARGS, CheckError, JsonObject, Launch, Plan, post, serving

STEPS = 30
TOKENS, FIRST_EVENT = 1000, 5
PROMPT = (
    "<|im_start|>user\nExplain how a web browser loads a page, step by step, in detail.<|im_end|>\n"
    "<|im_start|>assistant\n"
)
MARK = "copy_result_to_cpu"
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver")
TRACE_PATIENCE_S = 120.0

Event = dict[str, object]


# --- recording


def stream(
    url: str, tokens: int, on_event: Callable[[int], None] | None = None
) -> tuple[list[float], int]:
    """Times of a streamed answer's events in seconds, and its decode steps."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    body = {"text": PROMPT, "sampling_params": sampling, "stream": True}
    request = urllib.request.Request(
        f"{url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    times, last = [], b""
    with urllib.request.urlopen(request, timeout=300) as response:
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            times.append(time.perf_counter())
            last = line[6:]
            if on_event is not None:
                on_event(len(times))
    meta = json.loads(last)["meta_info"]
    return times, meta.get("spec_verify_ct", meta["completion_tokens"] - 1)


def step_us(url: str) -> float:
    """Microseconds a decode step of one request, nothing traced."""
    times, steps = stream(url, TOKENS)
    return (times[-1] - times[0]) * 1e6 / steps


def record(url: str, name: str, folder: Path, *, with_stack: bool) -> Path:
    """The trace of `STEPS` steps in the middle of an answer."""
    prefix = f"{name}-{'stack' if with_stack else 'plain'}"
    body: JsonObject = {
        "output_dir": str(folder.resolve()),
        "num_steps": STEPS,
        "activities": ["CPU", "GPU"],
        "with_stack": with_stack,
        "record_shapes": False,
        "profile_prefix": prefix,
    }

    def start(events: int) -> None:
        if events == FIRST_EVENT:
            # not from here: the server answers when the trace has begun, and we must go on reading
            threading.Thread(target=post, args=(f"{url}/start_profile", body), daemon=True).start()

    stream(url, TOKENS, start)
    deadline_s = time.monotonic() + TRACE_PATIENCE_S
    while time.monotonic() < deadline_s:
        found = list(folder.glob(f"{prefix}*.trace.json.gz"))
        if found and _is_whole(found[0]):
            return found[0]
        time.sleep(0.5)
    raise CheckError(f"no trace {prefix} in {folder}: the profiler did not end")


def _is_whole(path: Path) -> bool:
    try:
        with gzip.open(path) as file:
            while file.read(1 << 24):
                pass
    except (EOFError, OSError):
        return False
    return True


# --- reducing


def summarise(events: Sequence[Event]) -> JsonObject:
    """Per step: wall, GPU time, kernels, copies, runtime calls, operators, and one step's course.

    `events`: complete events of a chrome trace; times in microseconds.
    """
    begin, end, steps = _window(events)
    inside = [e for e in events if begin <= _ts(e) < end]
    launches = _graph_launches(events)
    gpu = sorted((e for e in inside if e.get("cat") in GPU_WORK), key=_ts)
    graph = [e for e in gpu if _correlation(e) in launches]
    loose = [e for e in gpu if _correlation(e) not in launches]
    calls = [e for e in inside if e.get("cat") in RUNTIME]
    busy = _union([(_ts(e), _ts(e) + _dur(e)) for e in gpu])
    return {
        "steps": steps,
        "step_us": (end - begin) / steps,
        "gpu_busy_us": busy / steps,
        "gpu_idle_us": (end - begin - busy) / steps,
        "kernels_in_graphs": _totals(graph, steps),
        "kernels_outside": _totals(loose, steps),
        "runtime_calls": _totals(calls, steps),
        "top_in_graphs": _by_name(graph, steps, 25),
        "outside_graphs": _by_name(loose, steps, 60),
        "calls": _by_name(calls, steps, 25),
        "operators": _operators([e for e in inside if e.get("cat") == "cpu_op"], steps),
        "annotations": _by_name([e for e in inside if e.get("cat") == "user_annotation"], steps),
        "course": _course(inside, _marks(events), launches),
    }


def functions(events: Sequence[Event], most: int = 60) -> list[JsonObject]:
    """Python functions by time in themselves, and with what they call, per step."""
    begin, end, steps = _window(events)
    python = [e for e in events if e.get("cat") == "python_function" and begin <= _ts(e) < end]
    own, whole, count = _nested(python)
    names = sorted(whole, key=lambda name: -whole[name])[:most]
    return [_calls(name, own, whole, count, steps) for name in names]


def _ts(event: Event) -> float:
    return float(event["ts"])  # type: ignore[arg-type]


def _dur(event: Event) -> float:
    return float(event.get("dur", 0.0))  # type: ignore[arg-type]


def _correlation(event: Event) -> object:
    """The number that work on the GPU shares with the call that launched it."""
    args = event.get("args")
    return args.get("correlation") if isinstance(args, dict) else None


def _graph_launches(events: Sequence[Event]) -> set[object]:
    """Correlations of the calls that launched whole graphs."""
    calls = [e for e in events if e.get("cat") in RUNTIME and "GraphLaunch" in str(e["name"])]
    return {_correlation(e) for e in calls}


def _marks(events: Sequence[Event]) -> list[float]:
    return sorted(
        _ts(e) for e in events if e.get("name") == MARK and e.get("cat") == "user_annotation"
    )


def _window(events: Sequence[Event]) -> tuple[float, float, int]:
    """Begin, end and steps of the whole steps in a trace."""
    marks = _marks(events)
    if len(marks) >= 3:
        return marks[0], marks[-1], len(marks) - 1
    times = [_ts(e) for e in events if e.get("cat") in (*GPU_WORK, *RUNTIME)]
    if not times:
        raise CheckError("the trace has no work of a GPU")
    return min(times), max(times), STEPS


def _union(spans: Iterable[tuple[float, float]]) -> float:
    """Length covered by spans that may overlap."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _totals(events: Sequence[Event], steps: int) -> JsonObject:
    return {"count": len(events) / steps, "us": sum(map(_dur, events)) / steps}


def _by_name(events: Sequence[Event], steps: int, most: int = 25) -> list[JsonObject]:
    groups: dict[str, list[float]] = defaultdict(list)
    for event in events:
        groups[str(event["name"])[:160]].append(_dur(event))
    names = sorted(groups, key=lambda name: -sum(groups[name]))[:most]
    return [
        {"name": name, "count": len(groups[name]) / steps, "us": sum(groups[name]) / steps}
        for name in names
    ]


def _operators(events: Sequence[Event], steps: int, most: int = 50) -> list[JsonObject]:
    own, whole, count = _nested(events)
    names = sorted(own, key=lambda name: -own[name])[:most]
    return [_calls(name, own, whole, count, steps) for name in names]


def _calls(
    name: str,
    own: Mapping[str, float],
    whole: Mapping[str, float],
    count: Mapping[str, int],
    steps: int,
) -> JsonObject:
    """What `_nested` found of one name, per step."""
    return {
        "name": name,
        "count": count[name] / steps,
        "own_us": own[name] / steps,
        "whole_us": whole[name] / steps,
    }


def _nested(
    events: Sequence[Event],
) -> tuple[dict[str, float], dict[str, float], dict[str, int]]:
    """Time in itself, time with callees, and calls, by name; events of a thread nest."""
    own: dict[str, float] = defaultdict(float)
    whole: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    threads: dict[object, list[Event]] = defaultdict(list)
    for event in events:
        threads[event.get("tid")].append(event)
    for some in threads.values():
        open_: list[tuple[float, str]] = []
        for event in sorted(some, key=lambda e: (_ts(e), -_dur(e))):
            name = str(event["name"])[:160]
            while open_ and open_[-1][0] <= _ts(event):
                open_.pop()
            own[name] += _dur(event)
            if open_:
                own[open_[-1][1]] -= _dur(event)
            if name not in (outer for _, outer in open_):  # recursion counts once
                whole[name] += _dur(event)
            count[name] += 1
            open_.append((_ts(event) + _dur(event), name))
    return own, whole, count


def _course(events: Sequence[Event], marks: Sequence[float], launches: set[object]) -> list[str]:
    """One step of median length as lines: GPU work, runs of one graph as one line, and gaps."""
    spans = list(pairwise(marks))
    if not spans:
        return []
    median = statistics.median(end - begin for begin, end in spans)
    begin, end = min(spans, key=lambda span: abs(span[1] - span[0] - median))
    work = [e for e in events if begin <= _ts(e) < end and e.get("cat") in (*GPU_WORK, *RUNTIME)]
    lines: list[str] = []
    run: list[Event] = []

    def close() -> None:
        if run:
            until = max(_ts(e) + _dur(e) for e in run)
            span = f"{_ts(run[0]) - begin:8.1f} +{until - _ts(run[0]):7.1f}"
            lines.append(f"{span}  GPU   graph of {len(run)} nodes")
            run.clear()

    for event in sorted(work, key=_ts):
        on_gpu = event.get("cat") in GPU_WORK
        if on_gpu and _correlation(event) in launches:
            run.append(event)
            continue
        if on_gpu:
            close()
        where = "GPU  " if on_gpu else "  host"
        name = str(event["name"])[:90]
        lines.append(f"{_ts(event) - begin:8.1f} +{_dur(event):7.1f}  {where} {name}")
    close()
    return lines


# --- writing


def page(name: str, found: JsonObject) -> str:
    """The summary as text."""
    lines = [f"{name}: step {found['untraced_step_us']:.0f} us untraced"]
    for key in ("steps", "step_us", "gpu_busy_us", "gpu_idle_us"):
        lines.append(f"  {key} {found[key]:.1f}")
    for key in ("kernels_in_graphs", "kernels_outside", "runtime_calls"):
        part = found[key]
        assert isinstance(part, dict)
        lines.append(f"  {key}: {part['count']:.1f} a step, {part['us']:.1f} us")
    for key in ("calls", "outside_graphs", "top_in_graphs", "annotations", "operators", "python"):
        rows = found[key]
        assert isinstance(rows, list)
        lines.append(f"\n{key} (a step)")
        for row in rows:
            us = f"{row['us']:8.1f} us" if "us" in row else ""
            if "own_us" in row:
                us = f"own {row['own_us']:8.1f} us, whole {row['whole_us']:8.1f} us"
            lines.append(f"  {row['count']:6.2f} x {us}  {row['name']}")
    course = found["course"]
    assert isinstance(course, list)
    return "\n".join([*lines, "\none step (us from its begin, length)", *course, ""])


def profile(name: str, url: str, folder: Path) -> None:
    """Measure, trace and reduce one server; write its page."""
    stream(url, 200)  # warm: kernels are compiled at first use
    untraced = [step_us(url) for _ in range(3)]
    traces = folder / "traces"
    traces.mkdir(parents=True, exist_ok=True)
    found = {"untraced_step_us": min(untraced), "untraced_passes_us": untraced}
    found |= summarise(load(record(url, name, traces, with_stack=False)))
    found["python"] = functions(load(record(url, name, traces, with_stack=True)))
    (folder / f"profile-{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    text = page(name, found)
    (folder / f"profile-{name}.txt").write_text(text)
    print("\n".join(text.splitlines()[:24]), flush=True)


def load(path: Path) -> list[Event]:
    """The complete events of a chrome trace."""
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        events = json.load(file)["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def profile_servers(launch: Launch, plans: Sequence[Plan]) -> None:
    """Run the servers side by side and profile one after the other."""
    with serving(plans, launch) as (urls, faults):
        for name, url in urls.items():
            profile(name, url, launch.out)
    if faults:
        raise CheckError("\n".join(f"{name} did not start:\n{why}" for name, why in faults.items()))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", required=True)
    parser.add_argument("--drafter", required=True)
    parser.add_argument("--out", type=Path, default=Path("gpu-check"))
    parser.add_argument("--server-args", default=COMMON_ARGS)
    options = parser.parse_args()
    launch = Launch(options.target, options.drafter, options.out, options.server_args)
    profile_servers(launch, [launch.chain(), launch.tree()])


if __name__ == "__main__":
    main()
