"""A small synthetic trace, reduced."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SOURCE = Path(__file__).parents[3] / "benchmarks" / "ddtree_sglang" / "step_profile.py"


@pytest.fixture(scope="module")
def step_profile() -> ModuleType:
    spec = importlib.util.spec_from_file_location("step_profile", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["step_profile"] = module
    spec.loader.exec_module(module)
    return module


def event(cat: str, name: str, ts: float, dur: float, correlation: int = 0) -> dict[str, Any]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 1, "args": args}


def trace(steps: int) -> list[dict[str, Any]]:
    """Steps of 100 µs: a graph of two nodes that overlap, then a kernel launched by itself."""
    events = []
    for step in range(steps):
        at = 1000.0 + 100 * step
        events += [
            event("user_annotation", "copy_result_to_cpu", at, 5),
            event("cpu_op", "aten::outer", at + 6, 20),
            event("cpu_op", "aten::inner", at + 8, 5),
            event("cuda_runtime", "cudaGraphLaunch", at + 10, 4, correlation=10 * step + 1),
            event("cuda_driver", "cuLaunchKernelEx", at + 15, 2, correlation=10 * step + 2),
            event("kernel", "matmul", at + 20, 30, correlation=10 * step + 1),
            event("kernel", "norm", at + 40, 20, correlation=10 * step + 1),
            event("kernel", "_grow", at + 70, 10, correlation=10 * step + 2),
        ]
    return events


def test_a_step_is_reduced_to_its_parts(step_profile: ModuleType) -> None:
    """Of five marks four whole steps count; work that overlaps is busy once."""
    found = step_profile.summarise(trace(5))
    assert found["steps"] == 4
    assert found["step_us"] == pytest.approx(100)
    assert found["gpu_busy_us"] == pytest.approx(40 + 10)  # 20 to 60, then 70 to 80
    assert found["gpu_idle_us"] == pytest.approx(50)
    assert found["kernels_in_graphs"] == {"count": 2, "us": 50}
    assert found["kernels_outside"] == {"count": 1, "us": 10}
    assert [row["name"] for row in found["calls"]] == ["cudaGraphLaunch", "cuLaunchKernelEx"]
    assert found["operators"][0] == {
        "name": "aten::outer",
        "count": 1,
        "own_us": 15,
        "whole_us": 20,
    }
    assert "graph of 2 nodes" in "\n".join(found["course"])


def test_a_page_names_what_runs_outside_of_graphs(step_profile: ModuleType) -> None:
    """Text for people, from the same numbers."""
    found = step_profile.summarise(trace(4)) | {"untraced_step_us": 90.0, "python": []}
    text = step_profile.page("tree", found)
    assert "step 90 us untraced" in text
    assert "1.00 x     10.0 us  _grow" in text


def test_a_trace_without_gpu_work_is_refused(step_profile: ModuleType) -> None:
    """A trace of a CPU server has nothing to say here."""
    with pytest.raises(step_profile.CheckError, match="no work of a GPU"):
        step_profile.summarise([event("cpu_op", "aten::add", 0, 1)])
