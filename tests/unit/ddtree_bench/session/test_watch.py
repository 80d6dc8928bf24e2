"""What a cell is flagged for: log lines of its window, neighbours, GPUs."""

import os
import time
from datetime import datetime

import pytest

from ddtree_bench.findings import FindingCode
from ddtree_bench.records import Finding
from ddtree_bench.server.log_file import LogFile
from ddtree_bench.server.neighbours import Neighbour
from ddtree_bench.server.telemetry import GpuSample, GpuSampler, HostSample, HostSampler
from ddtree_bench.session import watch
from ddtree_bench.session.watch import OwnProcesses, Seen, Watch, watching


def stamped(at_unix_s: float, text: str) -> str:
    """A line as SGLang writes it, in local time."""
    return f"[{datetime.fromtimestamp(at_unix_s):%Y-%m-%d %H:%M:%S}] {text}\n"


EAGER = "Decode batch, #running-req: 1, cuda graph: False, gen throughput (token/s): 1.0"


def codes(seen: Seen) -> list[str]:
    """Codes of the findings."""
    return [finding.code.value for finding in seen.findings]


def test_without_eyes_nothing_is_noticed():
    """An attached server: no log, no processes; what always holds is still said."""
    unknown = Finding(code=FindingCode.CACHE_UNKNOWN)
    blind = Watch(always=(unknown,))
    assert blind.end(blind.begin()) == Seen(None, (), (unknown,))


def test_lines_of_the_window_flag_the_cell(tmp_path):
    """An eager decode step of an hour ago is not this cell's; one of now is."""
    path = tmp_path / "log"
    now = time.time()
    path.write_text(stamped(now - 3600, EAGER), encoding="utf-8")
    eyes = Watch(log=LogFile(path))
    window = eyes.begin()
    assert codes(eyes.end(window)) == []
    with path.open("a", encoding="utf-8") as log:
        log.write(stamped(time.time(), EAGER) * 2)
    (finding,) = eyes.end(window).findings
    assert (finding.code, finding.count) == (FindingCode.EAGER_DECODE, 2)


def test_what_the_configuration_asks_for_is_no_finding(tmp_path):
    """A server without CUDA graphs decodes eagerly, as it was told to."""
    path = tmp_path / "log"
    path.write_text(stamped(time.time(), EAGER), encoding="utf-8")
    eyes = Watch(log=LogFile(path), declared=frozenset({FindingCode.EAGER_DECODE}))
    assert codes(eyes.end(eyes.begin())) == []


def test_a_busy_neighbour_flags_the_cell(monkeypatch):
    """By name and share."""
    monkeypatch.setattr(watch, "busiest", lambda before, after, own: Neighbour("make", 0.5))
    eyes = Watch(own=OwnProcesses())
    (finding,) = eyes.end(eyes.begin()).findings
    assert (finding.code, finding.detail) == (FindingCode.BUSY_HOST, "make: 50% of a CPU")


def test_many_small_neighbours_flag_it_too(monkeypatch):
    """None of them took a tenth of a CPU, all together 30 % of all CPUs."""
    monkeypatch.setattr(watch, "busiest", lambda before, after, own: Neighbour("cc1", 0.01))
    sampler = HostSampler(frozenset)
    eyes = Watch(own=OwnProcesses(), host_sampler=sampler)
    window = eyes.begin()
    sampler._samples.append(HostSample(time.time(), 0.9, 0.3, 2.0))
    seen = eyes.end(window)
    assert codes(seen) == ["busy_host"]
    assert seen.host is not None
    assert seen.host.foreign_share.mean == pytest.approx(0.3)


def test_gpus_flag_throttling_and_neighbours():
    """Two samples, one slowed by heat; another process used 20 % of the GPU."""
    sampler = GpuSampler(tuple)
    eyes = Watch(gpu_sampler=sampler)
    window = eyes.begin()
    sampler._samples += [
        GpuSample(time.time(), "GPU-1", power_w=100.0, reasons=0x40, foreign_utilisation=0.2),
        GpuSample(time.time(), "GPU-1", power_w=200.0, reasons=0x1, foreign_utilisation=0.2),
    ]
    seen = eyes.end(window)
    assert codes(seen) == ["busy_gpu", "throttled"]
    assert seen.findings[1].detail == "GPU-1: hardware thermal slowdown, in 50% of the samples"
    (gpu,) = seen.gpus
    assert gpu.power_w is not None
    assert (gpu.samples, gpu.power_w.low, gpu.power_w.mean, gpu.power_w.high) == (2, 100, 150, 200)


def test_a_sound_gpu_is_not_flagged():
    """No reason, nobody else: readings without a finding."""
    sampler = GpuSampler(tuple)
    eyes = Watch(gpu_sampler=sampler)
    window = eyes.begin()
    sampler._samples.append(GpuSample(time.time(), "GPU-1", reasons=0, foreign_utilisation=0.0))
    assert eyes.end(window).findings == ()


def test_sensors_are_read_within_the_block_only(tmp_path):
    """The threads have ended when the block is left."""
    with watching(LogFile(tmp_path / "none"), {}, frozenset()) as eyes:
        assert eyes.host_sampler is not None
        assert eyes.host_sampler._thread is not None
    assert eyes.host_sampler._thread is None


def test_our_own_processes_are_known():
    """This one is among them."""
    assert os.getpid() in OwnProcesses()()
