"""What the machine did while a cell was measured: clocks, power, heat and other people's load.

Sampled once a second by a thread and summed up for any window afterwards. A reading that a device
does not give is None. Times are Unix seconds, so that they meet the records of the client.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final, Generic, Protocol, Self, TypeVar

import numpy as np
import psutil

FOREIGN_CPU_SHARE: Final = 0.10
"""Mean share of all CPUs that others may take before a measurement is flagged."""

LONGEST_GAP_S: Final = 5.0
"""Power is interpolated over shorter gaps only; a longer one leaves the energy unknown."""

THROTTLE_REASONS: Final = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clock",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bits of NVML's clock event reasons; idle (0x1) and application clocks (0x2) slow nothing down."""
USUAL_AT_FULL_LOAD: Final = frozenset({"power cap"})
"""Recorded, but no fault of a measurement: a busy GPU is meant to run at its power limit."""

Pids = Callable[[], Collection[int]]
"""Process ids that belong to the measurement at the time of the call."""


@dataclass(frozen=True, slots=True)
class Span:
    """Smallest, mean and largest of some samples."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One look at one GPU."""

    at_unix_s: float
    gpu: str
    """Its UUID."""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    memory_used_bytes: int | None = None
    utilisation: float | None = None
    """Share of the driver's sample period in which a kernel ran, 0 to 1."""
    reasons: int | None = None
    """Bits of THROTTLE_REASONS."""
    foreign_processes: int | None = None
    """Processes on this GPU that are not ours; None if NVML's ids cannot be told apart."""
    foreign_memory_bytes: int | None = None
    foreign_utilisation: float | None = None
    """Largest SM share of a foreign process since the last sample, 0 to 1."""


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """One GPU during a window."""

    gpu: str
    samples: int
    sm_clock_mhz: Span | None
    memory_clock_mhz: Span | None
    power_w: Span | None
    temperature_c: Span | None
    memory_used_bytes: Span | None
    utilisation: Span | None
    energy_j: float | None
    """Integral of the power over the window."""
    throttle_reasons: tuple[str, ...] | None
    """Every reason that was seen, other than idle and application clocks."""
    throttled_share: float | None
    """Share of the samples with such a reason other than those usual at full load."""
    foreign_share: float | None
    """Share of the samples in which a process of others was on the GPU."""
    foreign_memory_bytes: Span | None
    foreign_utilisation: Span | None


@dataclass(frozen=True, slots=True)
class HostSample:
    """The host's CPUs since the sample before."""

    at_unix_s: float
    busy_share: float
    """Of all CPUs together, 0 to 1."""
    foreign_share: float
    """The part of `busy_share` that processes other than ours took."""
    load_1m: float


@dataclass(frozen=True, slots=True)
class HostSummary:
    """The host during a window."""

    samples: int
    busy_share: Span
    foreign_share: Span
    load_1m: Span

    @property
    def disturbed(self) -> bool:
        """Whether others took more than FOREIGN_CPU_SHARE of the CPUs on average."""
        return self.foreign_share.mean > FOREIGN_CPU_SHARE


class Timed(Protocol):
    """Something with a time."""

    @property
    def at_unix_s(self) -> float:
        """Unix seconds."""
        ...


SampleT = TypeVar("SampleT", bound=Timed)


def summarise_gpus(
    samples: Sequence[GpuSample], start_unix_s: float, end_unix_s: float
) -> tuple[GpuSummary, ...]:
    """A summary a GPU of the samples in [start, end]; GPUs without a sample there are left out."""
    by_gpu: dict[str, list[GpuSample]] = {}
    for sample in samples:
        by_gpu.setdefault(sample.gpu, []).append(sample)
    summaries = (
        _summarise_gpu(gpu, of_gpu, start_unix_s, end_unix_s) for gpu, of_gpu in by_gpu.items()
    )
    return tuple(summary for summary in summaries if summary.samples > 0)


def _summarise_gpu(
    gpu: str, samples: Sequence[GpuSample], start_unix_s: float, end_unix_s: float
) -> GpuSummary:
    inside = _inside(samples, start_unix_s, end_unix_s)
    reasons = [sample.reasons for sample in inside if sample.reasons is not None]
    named = [throttle_reasons(bits) for bits in reasons]
    slowed = [names for names in named if not USUAL_AT_FULL_LOAD.issuperset(names)]
    foreign = [s.foreign_processes for s in inside if s.foreign_processes is not None]
    return GpuSummary(
        gpu=gpu,
        samples=len(inside),
        sm_clock_mhz=span(s.sm_clock_mhz for s in inside),
        memory_clock_mhz=span(s.memory_clock_mhz for s in inside),
        power_w=span(s.power_w for s in inside),
        temperature_c=span(s.temperature_c for s in inside),
        memory_used_bytes=span(s.memory_used_bytes for s in inside),
        utilisation=span(s.utilisation for s in inside),
        energy_j=energy_j(samples, start_unix_s, end_unix_s),
        throttle_reasons=tuple(dict.fromkeys(sum(named, ()))) if reasons else None,
        throttled_share=_share(len(slowed), len(reasons)),
        foreign_share=_share(sum(count > 0 for count in foreign), len(foreign)),
        foreign_memory_bytes=span(s.foreign_memory_bytes for s in inside),
        foreign_utilisation=span(s.foreign_utilisation for s in inside),
    )


def summarise_host(
    samples: Sequence[HostSample], start_unix_s: float, end_unix_s: float
) -> HostSummary | None:
    """The host's samples in [start, end] in one; None without any."""
    inside = _inside(samples, start_unix_s, end_unix_s)
    busy = span(s.busy_share for s in inside)
    foreign = span(s.foreign_share for s in inside)
    load = span(s.load_1m for s in inside)
    if busy is None or foreign is None or load is None:
        return None
    return HostSummary(len(inside), busy, foreign, load)


def energy_j(samples: Sequence[GpuSample], start_unix_s: float, end_unix_s: float) -> float | None:
    """Joules of one GPU over [start, end]: power, linear between samples, integrated.

    Samples outside the window serve to interpolate at its ends; before the first and after the
    last one the power is taken as constant. None if a gap is longer than LONGEST_GAP_S.
    """
    known = [(s.at_unix_s, s.power_w) for s in samples if s.power_w is not None]
    if not known or end_unix_s <= start_unix_s:
        return None
    at = np.array([moment for moment, _ in known])
    watts = np.array([power for _, power in known])
    inside = at[(at > start_unix_s) & (at < end_unix_s)]
    knots = np.array([start_unix_s, *inside, end_unix_s])
    nearest = np.abs(knots[:, None] - at[None, :]).min(axis=1)
    if max(np.diff(knots).max(), nearest.max()) > LONGEST_GAP_S:
        return None
    return float(np.trapezoid(np.interp(knots, at, watts), knots))


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Names of what slows a GPU's clocks down; empty for idle and application clocks."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def span(values: Iterable[float | None]) -> Span | None:
    """Smallest, mean and largest of the measured values; None if there is none."""
    known = [value for value in values if value is not None]
    return Span(min(known), sum(known) / len(known), max(known)) if known else None


def _inside(
    samples: Sequence[SampleT], start_unix_s: float, end_unix_s: float
) -> tuple[SampleT, ...]:
    return tuple(s for s in samples if start_unix_s <= s.at_unix_s <= end_unix_s)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None


class Sampler(Generic[SampleT]):
    """A context in which a thread takes samples; leaving it waits for the thread's end."""

    def __init__(self, read: Callable[[], Sequence[SampleT]], period_s: float = 1.0) -> None:
        self._read = read
        self._period_s = period_s
        self._samples: list[SampleT] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    @property
    def samples(self) -> tuple[SampleT, ...]:
        """All samples so far, oldest first."""
        return tuple(self._samples)

    def __enter__(self) -> Self:
        self._stop.clear()
        self._thread = threading.Thread(target=self._sample, name=type(self).__name__, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the thread; may be called again. Raises what ended the sampling early."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _sample(self) -> None:
        try:
            while not self._stop.is_set():
                self._samples.extend(self._read())
                self._stop.wait(self._period_s)
        except Exception as error:  # handed to stop(), which raises it where it can be seen
            self._error = error


class GpuSampler(Sampler[GpuSample]):
    """Samples the GPUs that this job may use."""

    @classmethod
    def open(
        cls,
        own_pids: Pids,
        environ: Mapping[str, str] = os.environ,
        *,
        period_s: float = 1.0,
    ) -> GpuSampler | None:
        """A sampler of the GPUs in `CUDA_VISIBLE_DEVICES`; None without NVML or without a GPU."""
        nvml = load_nvml()
        if nvml is None:
            return None
        reader = GpuReader(nvml, own_pids, visible_devices(environ))
        return cls(reader.read, period_s) if reader.gpus else None

    def summary(self, start_unix_s: float, end_unix_s: float) -> tuple[GpuSummary, ...]:
        """One entry a GPU for the samples in [start, end]."""
        return summarise_gpus(self.samples, start_unix_s, end_unix_s)


class HostSampler(Sampler[HostSample]):
    """Samples the host's CPUs."""

    def __init__(self, own_pids: Pids, *, period_s: float = 1.0) -> None:
        super().__init__(HostReader(own_pids).read, period_s)

    def summary(self, start_unix_s: float, end_unix_s: float) -> HostSummary | None:
        """The samples in [start, end] in one; None without any."""
        return summarise_host(self.samples, start_unix_s, end_unix_s)


def load_nvml() -> ModuleType | None:
    """NVML, initialised; None where the package `nvidia-ml-py` or the driver is absent."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def visible_devices(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Indices or UUIDs in `CUDA_VISIBLE_DEVICES`; None if all GPUs are visible.

    CUDA counts the fastest GPU first, NVML by PCI address: the two agree where all GPUs are alike
    or `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set.
    """
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    return tuple(word.strip() for word in text.split(",") if word.strip())


T = TypeVar("T")


class GpuReader:
    """Reads GPUs through NVML; a reading that fails is None, the others go on."""

    def __init__(
        self,
        nvml: ModuleType,
        own_pids: Pids,
        devices: Sequence[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._nvml = nvml
        self._own_pids = own_pids
        self._clock = clock
        if devices is None:
            devices = [str(index) for index in range(self._try(nvml.nvmlDeviceGetCount) or 0)]
        handles = (self._handle(device) for device in devices)
        self.gpus: dict[str, object] = {
            self._try(nvml.nvmlDeviceGetUUID, handle) or str(handle): handle
            for handle in handles
            if handle is not None
        }
        self._seen_us: dict[str, int] = {}

    def read(self) -> tuple[GpuSample, ...]:
        """One sample a GPU."""
        own = frozenset(self._own_pids())
        return tuple(self._sample(gpu, handle, own) for gpu, handle in self.gpus.items())

    def _handle(self, device: str) -> object | None:
        if device.isdigit():
            return self._try(self._nvml.nvmlDeviceGetHandleByIndex, int(device))
        return self._try(self._nvml.nvmlDeviceGetHandleByUUID, device)

    def _try(self, call: Callable[..., T], *args: object) -> T | None:
        try:
            return call(*args)
        except self._nvml.NVMLError:
            return None

    def _sample(self, gpu: str, handle: object, own: frozenset[int]) -> GpuSample:
        nvml = self._nvml
        milliwatts = self._try(nvml.nvmlDeviceGetPowerUsage, handle)
        memory = self._try(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = self._try(nvml.nvmlDeviceGetUtilizationRates, handle)
        foreign = self._foreign(handle, own)
        return GpuSample(
            at_unix_s=self._clock(),
            gpu=gpu,
            sm_clock_mhz=self._try(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._try(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            power_w=None if milliwatts is None else milliwatts / 1000,
            temperature_c=self._try(
                nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            memory_used_bytes=None if memory is None else memory.used,
            utilisation=None if rates is None else rates.gpu / 100,
            # the newer name of this call is absent from drivers before 535
            reasons=self._try(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
            foreign_processes=None if foreign is None else len(foreign),
            foreign_memory_bytes=None if foreign is None else sum(foreign.values()),
            foreign_utilisation=(
                None if foreign is None else self._foreign_utilisation(gpu, handle, own)
            ),
        )

    def _foreign(self, handle: object, own: frozenset[int]) -> dict[int, int] | None:
        """Memory by foreign process id, bytes; None if ours cannot be told from the others.

        In a container NVML may give the ids of the host, where none of ours appears.
        """
        running = self._try(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if running is None:
            return None
        memory = {process.pid: process.usedGpuMemory or 0 for process in running}
        if memory and not own & memory.keys():
            return None
        return {pid: used for pid, used in memory.items() if pid not in own}

    def _foreign_utilisation(self, gpu: str, handle: object, own: frozenset[int]) -> float | None:
        since_us = self._seen_us.get(gpu, int((self._clock() - 1) * 1e6))
        used = self._try(self._nvml.nvmlDeviceGetProcessUtilization, handle, since_us)
        if used is None:
            return None
        self._seen_us[gpu] = max((entry.timeStamp for entry in used), default=since_us)
        return max((entry.smUtil / 100 for entry in used if entry.pid not in own), default=0.0)


class HostReader:
    """Reads CPU time: of the host, and of our processes."""

    def __init__(self, own_pids: Pids, clock: Callable[[], float] = time.time) -> None:
        self._own_pids = own_pids
        self._clock = clock
        self._before: tuple[float, float, dict[int, float]] | None = None

    def read(self) -> tuple[HostSample, ...]:
        """The share since the last call; nothing on the first one or if no time has passed."""
        total_s, busy_s = _cpu_seconds()
        own_s = {
            pid: used for pid in self._own_pids() if (used := _process_seconds(pid)) is not None
        }
        before, self._before = self._before, (total_s, busy_s, own_s)
        if before is None or total_s <= before[0]:
            return ()
        elapsed_s = total_s - before[0]
        busy = _within_one((busy_s - before[1]) / elapsed_s)
        own = sum(used - before[2].get(pid, 0.0) for pid, used in own_s.items()) / elapsed_s
        load_1m = psutil.getloadavg()[0]
        return (HostSample(self._clock(), busy, _within_one(busy - own), load_1m),)


def _within_one(share: float) -> float:
    """The share cut to [0, 1]: the kernel's counters tick in 10 ms and not all at once."""
    return min(1.0, max(0.0, share))


def _cpu_seconds() -> tuple[float, float]:
    """CPU seconds of all CPUs since boot: all of them, and those that were not idle."""
    times = psutil.cpu_times()
    # on Linux user and nice hold guest time already
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    total_s = float(sum(times)) - guests
    return total_s, total_s - times.idle - getattr(times, "iowait", 0.0)


def _process_seconds(pid: int) -> float | None:
    """CPU seconds of a process; None if it is gone or not ours to ask."""
    try:
        times = psutil.Process(pid).cpu_times()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    return float(times.user + times.system)


def process_tree(root_pid: int) -> frozenset[int]:
    """The process, its living descendants and this process itself: who may use the machine."""
    try:
        children = psutil.Process(root_pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    return frozenset({root_pid, os.getpid(), *(child.pid for child in children)})
