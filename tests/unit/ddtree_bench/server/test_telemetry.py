"""Clocks, power and foreign load: pure sums, a fake NVML, and real CPU counters."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from ddtree_bench.server.telemetry import (
    GpuReader,
    GpuSample,
    GpuSampler,
    HostReader,
    HostSample,
    HostSampler,
    HostSummary,
    Sampler,
    Span,
    energy_j,
    process_tree,
    summarise_gpus,
    summarise_host,
    throttle_reasons,
    visible_devices,
)

OWN, FOREIGN = 100, 200


class NVMLError(Exception):
    """Stands for pynvml's error."""


class FakeNvml(ModuleType):
    """One GPU with fixed readings; a name in `broken` raises as NVML does."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *broken: str, processes: dict[int, int] | None = None) -> None:
        super().__init__("pynvml")
        used = {OWN: 8_000} if processes is None else processes
        running = [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in used.items()]
        shares = [SimpleNamespace(pid=pid, smUtil=30, timeStamp=5) for pid in used]
        readings: dict[str, Callable[..., object]] = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: f"handle-{index}",
            "nvmlDeviceGetHandleByUUID": lambda uuid: f"handle-{uuid}",
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetPowerUsage": lambda handle: 250_500,
            "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=9_000),
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=75),
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x4,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: running,
            "nvmlDeviceGetProcessUtilization": lambda handle, since: shares,
        }
        for name, reading in readings.items():
            setattr(self, name, self._refuse if name in broken else reading)

    def _refuse(self, *args: object) -> object:
        raise NVMLError("Not Supported")


def gpu_sample(
    at: float,
    power_w: float | None = None,
    *,
    gpu: str = "A",
    sm_clock_mhz: int | None = None,
    reasons: int | None = None,
    foreign_processes: int | None = None,
) -> GpuSample:
    """A sample at this time; what is not named was not measured."""
    return GpuSample(
        at,
        gpu,
        power_w=power_w,
        sm_clock_mhz=sm_clock_mhz,
        reasons=reasons,
        foreign_processes=foreign_processes,
    )


def read_one(nvml: FakeNvml) -> GpuSample:
    """One sample of the fake GPU, where process 100 is ours."""
    (sample,) = GpuReader(nvml, lambda: {OWN}, clock=lambda: 12.0).read()
    return sample


def test_energy_is_the_integral_of_power() -> None:
    """Power is linear between samples, and the window may begin and end between them."""
    samples = [gpu_sample(0, 100), gpu_sample(2, 300), gpu_sample(4, 300)]
    # 0 to 2 s: (100 + 300) ÷ 2 × 2 = 400 J; 2 to 4 s: 300 × 2 = 600 J
    assert energy_j(samples, 0, 4) == pytest.approx(1000)
    # 1 to 2 s: (200 + 300) ÷ 2 = 250 J; 2 to 3 s: 300 J
    assert energy_j(samples, 1, 3) == pytest.approx(550)


def test_energy_of_parts_adds_up() -> None:
    """Any cut of a window gives two energies whose sum is the whole."""
    samples = [gpu_sample(at, 100 + 37 * (at % 3)) for at in range(10)]
    whole = energy_j(samples, 0.5, 8.5)
    first, second = energy_j(samples, 0.5, 3.3), energy_j(samples, 3.3, 8.5)
    assert whole is not None
    assert first is not None
    assert second is not None
    assert first + second == pytest.approx(whole)


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [gpu_sample(1)],
        [gpu_sample(0, 100), gpu_sample(20, 100)],
        [gpu_sample(0, 100), gpu_sample(1, 100)],
    ],
)
def test_energy_is_unknown_over_a_gap(samples: list[GpuSample]) -> None:
    """Without power readings near every part of the window there is no energy, not a guess."""
    assert energy_j(samples, 0, 20) is None


def test_one_sample_beside_a_short_window() -> None:
    """A window between two samples takes its power from the nearest one."""
    assert energy_j([gpu_sample(0, 200)], 1, 1.5) == pytest.approx(100)


def test_gpu_summary() -> None:
    """Spans, reasons and shares count the samples of the window only, a GPU each."""
    samples = [
        gpu_sample(0, 900, sm_clock_mhz=1, reasons=0x40, foreign_processes=5),
        gpu_sample(1, 100, sm_clock_mhz=1500, reasons=0x1, foreign_processes=0),
        gpu_sample(2, 200, sm_clock_mhz=1980, reasons=0x4, foreign_processes=1),
        gpu_sample(3, 300, sm_clock_mhz=None, reasons=0x4 | 0x20, foreign_processes=None),
        gpu_sample(2, gpu="B"),
    ]
    a, b = summarise_gpus(samples, 1, 3)
    # the missing clock is left out: (1500 + 1980) ÷ 2
    assert (a.gpu, a.samples, a.sm_clock_mhz) == ("A", 3, Span(1500, 1740, 1980))
    assert a.power_w == Span(100, 200, 300)
    assert a.throttle_reasons == ("power cap", "software thermal slowdown")
    # of three samples one is idle, one at its power cap, one slowed by heat as well
    assert a.throttled_share == pytest.approx(1 / 3)
    assert a.foreign_share == pytest.approx(1 / 2)
    assert a.energy_j == pytest.approx(400)
    assert (b.gpu, b.samples, b.power_w, b.throttle_reasons) == ("B", 1, None, None)


def test_gpu_summary_without_samples() -> None:
    """A window that no sample fell into has no summary."""
    assert summarise_gpus([gpu_sample(0, 100)], 5, 6) == ()


def test_idle_and_application_clocks_slow_nothing() -> None:
    """Those two bits are not throttling; a bit without a name is not invented."""
    assert throttle_reasons(0x1 | 0x2 | 0x100000) == ()
    assert throttle_reasons(0x3 | 0x80) == ("power brake",)


def test_readings_and_their_units() -> None:
    """Milliwatts become watts and percent becomes a share; the rest stays as NVML has it."""
    assert read_one(FakeNvml()) == GpuSample(
        at_unix_s=12.0,
        gpu="GPU-handle-0",
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        power_w=250.5,
        temperature_c=61,
        memory_used_bytes=9_000,
        utilisation=0.75,
        reasons=0x4,
        foreign_processes=0,
        foreign_memory_bytes=0,
        foreign_utilisation=0.0,
    )


def test_foreign_process_is_counted() -> None:
    """A process that is not ours shows with its memory and its share of the SMs."""
    sample = read_one(FakeNvml(processes={OWN: 8_000, FOREIGN: 500}))
    assert (sample.foreign_processes, sample.foreign_memory_bytes) == (1, 500)
    assert sample.foreign_utilisation == 0.3


def test_ids_of_another_namespace_blame_nobody() -> None:
    """If none of NVML's ids is ours they may all be ours: foreign load is not measured."""
    sample = read_one(FakeNvml(processes={7001: 8_000, 7002: 10}))
    assert sample.foreign_processes is None
    assert sample.foreign_memory_bytes is None
    assert sample.foreign_utilisation is None


def test_a_refused_reading_is_none() -> None:
    """One reading that the device does not support leaves the others alone."""
    sample = read_one(FakeNvml("nvmlDeviceGetPowerUsage", "nvmlDeviceGetProcessUtilization"))
    assert sample.power_w is None
    assert sample.foreign_utilisation is None
    assert sample.temperature_c == 61
    assert sample.foreign_processes == 0


def test_only_the_visible_gpus_are_read() -> None:
    """Indices and UUIDs both name a GPU; an empty list names none."""
    reader = GpuReader(FakeNvml(), lambda: (), visible_devices({"CUDA_VISIBLE_DEVICES": "2,GPU-x"}))
    assert list(reader.gpus) == ["GPU-handle-2", "GPU-handle-GPU-x"]
    assert visible_devices({}) is None
    assert visible_devices({"CUDA_VISIBLE_DEVICES": ""}) == ()


@pytest.mark.parametrize(
    ("module", "environ"),
    [
        (None, {}),
        (FakeNvml("nvmlInit"), {}),
        (FakeNvml("nvmlDeviceGetCount"), {}),
        (FakeNvml(), {"CUDA_VISIBLE_DEVICES": ""}),
    ],
    ids=["no package", "no driver", "no device", "none visible"],
)
def test_no_gpu_no_sampler(
    monkeypatch: pytest.MonkeyPatch, module: FakeNvml | None, environ: dict[str, str]
) -> None:
    """Without package, driver or GPU there is no sampler and no error."""
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert GpuSampler.open(lambda: (), environ) is None


def test_sampler_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler reads through NVML from its thread and sums up what it read."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    looked = threading.Event()

    def own() -> set[int]:
        looked.set()
        return {OWN}

    sampler = GpuSampler.open(own, {}, period_s=0.001)
    assert sampler is not None
    with sampler:
        assert looked.wait(10)
    (summary,) = sampler.summary(0, sampler.samples[-1].at_unix_s)
    assert summary.power_w == Span(250.5, 250.5, 250.5)
    assert summary.throttle_reasons == ("power cap",)


def test_sampler_leaves_no_thread() -> None:
    """Leaving the context, also by an error and twice, ends the thread."""
    looked = threading.Event()

    def read() -> list[HostSample]:
        looked.set()
        return [HostSample(1.0, 0.5, 0.1, 2.0)]

    def leave_by_error() -> None:
        with sampler:
            assert looked.wait(10)
            raise KeyError

    sampler = Sampler(read, period_s=3600)
    before = threading.active_count()
    with pytest.raises(KeyError):
        leave_by_error()
    sampler.stop()
    assert threading.active_count() == before
    assert sampler.samples == (HostSample(1.0, 0.5, 0.1, 2.0),)


def test_error_in_the_thread_reaches_the_caller() -> None:
    """A bug in a reading is not swallowed with its thread."""
    failed = threading.Event()

    def read() -> list[HostSample]:
        failed.set()
        raise ZeroDivisionError

    sampler = Sampler(read)
    with pytest.raises(ZeroDivisionError), sampler:
        assert failed.wait(10)


def host(monkeypatch: pytest.MonkeyPatch, *ticks: tuple[float, float, dict[int, float]]) -> None:
    """Make the host's counters read (idle, busy, seconds by process), one a look."""
    looks = iter(ticks)
    seconds: dict[int, float] = {}

    def cpu_times() -> object:
        idle, busy, of_process = next(looks)
        seconds.clear()
        seconds.update(of_process)
        return Times((busy, idle))

    module = "ddtree_bench.server.telemetry"
    monkeypatch.setattr(f"{module}.psutil.cpu_times", cpu_times)
    monkeypatch.setattr(f"{module}._process_seconds", lambda pid: seconds.get(pid))


class Times(tuple[float, float]):
    """CPU times of a platform that tells only `user` and `idle`."""

    __slots__ = ()

    @property
    def idle(self) -> float:
        """Seconds without work."""
        return self[1]


def test_foreign_cpu_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is busy and not ours is foreign; the first look has nothing to compare with."""
    host(monkeypatch, (100, 50, {OWN: 5}), (102, 56, {OWN: 8, 101: 1}))
    reader = HostReader(lambda: [OWN, 101, 999], clock=lambda: 7.0)
    assert reader.read() == ()
    (sample,) = reader.read()
    # 8 CPU seconds passed, 6 of them busy, 3 + 1 of them ours: (6 − 4) ÷ 8
    assert (sample.at_unix_s, sample.busy_share, sample.foreign_share) == (7.0, 0.75, 0.25)


def test_shares_stay_within_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters that tick late do not make a negative share."""
    host(monkeypatch, (100, 50, {OWN: 5}), (101, 51, {OWN: 9}))
    reader = HostReader(lambda: [OWN])
    reader.read()
    assert reader.read()[0].foreign_share == 0.0


def test_no_time_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks within one tick of the kernel give no sample."""
    host(monkeypatch, (100, 50, {}), (100, 50, {}))
    reader = HostReader(lambda: [])
    assert reader.read() == reader.read() == ()


def test_host_summary() -> None:
    """A mean foreign share above 10 % is a disturbance; 10 % is not."""

    def of(*shares: float) -> HostSummary | None:
        samples = [HostSample(at, 0.9, share, 1.0) for at, share in enumerate(shares)]
        return summarise_host(samples, 0, 10)

    quiet, loud = of(0.0, 0.2), of(0.0, 0.25)
    assert quiet is not None
    assert loud is not None
    assert (quiet.foreign_share.mean, quiet.disturbed) == (0.1, False)
    assert (loud.foreign_share, loud.disturbed) == (Span(0.0, 0.125, 0.25), True)
    assert of() is None


def test_real_host_counters() -> None:
    """On this machine the counters give shares between 0 and 1."""
    reader = HostReader(lambda: process_tree(os.getpid()))
    samples = reader.read()
    while not samples:
        samples = reader.read()
    assert 0 <= samples[0].foreign_share <= samples[0].busy_share <= 1


def test_host_sampler_sums_up() -> None:
    """The sampler of this host gives a summary of its own samples."""
    enough = threading.Event()
    looks = iter(range(1_000_000))

    def own() -> frozenset[int]:
        if next(looks) > 20:
            enough.set()
        return process_tree(os.getpid())

    sampler = HostSampler(own, period_s=0.01)
    with sampler:
        assert enough.wait(30)
    summary = sampler.summary(0, sampler.samples[-1].at_unix_s)
    assert summary is not None
    assert summary.samples == len(sampler.samples) > 0


def test_process_tree_of_a_gone_process() -> None:
    """A server that is gone leaves this process itself: the client is never foreign."""
    assert process_tree(2**22 + 1) == {2**22 + 1, os.getpid()}
