"""What an SGLang server's log tells: start-up phases, batches, silent degradations, its death.

Pure: lines in, records out. Formats of SGLang 0.5.17 and 0.5.23; a line that is not known is
ignored and none raises. Times are Unix seconds; SGLang stamps whole seconds of local time, so an
event may lie up to 1 s after its stamp. Memory is in GiB (SGLang writes "GB" and divides by 2³⁰).
With tensor parallelism only rank 0 counts for phases and batches; findings come from every rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from functools import cache
from typing import Final, Protocol, TypeVar

from ddtree_bench.findings import FindingCode
from ddtree_bench.status import Status


@dataclass(frozen=True, slots=True)
class LogFinding:
    """One finding and the line that shows it."""

    code: FindingCode
    at_unix_s: float | None
    line_number: int
    """Counted from 1."""
    line: str

    def __str__(self) -> str:
        return f"{self.code.sentence} (log line {self.line_number}: {self.line})"


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of the start-up, such as `load LlamaForCausalLM` or `capture target verify`."""

    name: str
    began_unix_s: float | None
    elapsed_s: float | None = None
    """As the server measured it; None while the phase has not ended."""
    used_gib: float | None = None
    tokens_per_request: int | None = None
    """Tokens a graph takes for each request; of the target's verify graph: the verify width."""
    batch_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """A cache that was allocated: `KV` (size in tokens) or `Mamba` (size in requests)."""

    kind: str
    size: int | None
    total_gib: float | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the scheduler can hold."""

    max_total_num_tokens: int | None
    max_running_requests: int | None
    context_len: int | None
    chunked_prefill_size: int | None
    available_gib: float | None


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """One report on decoding (by default every 40 steps)."""

    at_unix_s: float | None
    running: int
    queued: int | None
    accept_length: float | None
    """Tokens a request gained in a verify step since the last report; None for plain decoding."""
    accept_rate: float | None
    graph: bool | None
    tok_per_s: float | None


@dataclass(frozen=True, slots=True)
class PrefillBatch:
    """One prefill batch. `graph` may be False on a sound server: short prompts run eagerly."""

    at_unix_s: float | None
    new_sequences: int
    new_tokens: int | None
    cached_tokens: int | None
    graph: bool | None
    tok_per_s: float | None


@dataclass(frozen=True, slots=True)
class LogFailure:
    """The last exception or death that the log tells of."""

    status: Status
    exception: str | None
    """Its type; None when only an exit code or a message of the argument parser is known."""
    message: str
    frame: str | None
    """Deepest frame, `file:line in function`."""
    at_unix_s: float | None
    during: str | None
    """The start-up phase that had begun and not ended."""
    fatal: bool
    """True if the log itself says that the server went down with it."""

    def __str__(self) -> str:
        what = f"{self.exception}: {self.message}" if self.exception else self.message
        during = "" if self.during is None else f" during {self.during}"
        place = "" if self.frame is None else f" at {self.frame}"
        return f"{what}{during}{place}"


@dataclass(frozen=True, slots=True)
class ServerLog:
    """Everything that was read so far."""

    phases: tuple[Phase, ...]
    pools: tuple[Pool, ...]
    capacity: Capacity | None
    draft_runner: dict[str, str]
    """Resolved facts of the DFlash drafter: attention_backend, block_size, …; empty without one."""
    startup_s: dict[str, float]
    """The server's own summary of its start, seconds by part."""
    ready_unix_s: float | None
    decodes: tuple[DecodeBatch, ...]
    prefills: tuple[PrefillBatch, ...]
    findings: tuple[LogFinding, ...]
    failure: LogFailure | None
    asked_to_stop: bool
    """A SIGTERM was received; what its processes say while they end is no failure."""

    @property
    def verify_width(self) -> int | None:
        """Tokens the target verifies in a step, from its graph capture; 1 for plain decoding."""
        for phase in reversed(self.phases):
            if phase.name in ("capture target verify", "capture target decode"):
                return phase.tokens_per_request
        return None

    def between(self, start_unix_s: float, end_unix_s: float) -> ServerLog:
        """The same log with only those batches and findings that fall into a measured window."""
        return replace(
            self,
            decodes=within(self.decodes, start_unix_s, end_unix_s),
            prefills=within(self.prefills, start_unix_s, end_unix_s),
            findings=within(self.findings, start_unix_s, end_unix_s),
        )


class Timed(Protocol):
    """Something with a time."""

    @property
    def at_unix_s(self) -> float | None:
        """Unix seconds; None where the log gave no time."""
        ...


TimedT = TypeVar("TimedT", bound=Timed)


def within(items: Sequence[TimedT], start_unix_s: float, end_unix_s: float) -> tuple[TimedT, ...]:
    """Items stamped in [start, end]; the stamp's second counts if it overlaps the window."""
    return tuple(
        item
        for item in items
        if item.at_unix_s is not None and start_unix_s - 1 < item.at_unix_s <= end_unix_s
    )


def parse_log(lines: Iterable[str], tz: tzinfo | None = None) -> ServerLog:
    """Read a whole log; `tz` is the zone of its stamps, by default this machine's own."""
    parser = LogParser(tz)
    for line in lines:
        parser.feed(line)
    return parser.log()


_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_STAMP: Final = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)([^\]]*)\] ?")
_OTHER_RANK: Final = re.compile(r"\b(?:TP|PP|DP)[1-9]")
_CAPTURE: Final = re.compile(r"Capture (target|draft) ([\w ]+?) \w+ graph (begin|end)\.")
_FRAME: Final = re.compile(r'\s+File "(.+)", line (\d+), in (.+)')
_EXCEPTION: Final = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_CHAINED: Final = ("During handling of the above", "The above exception was the direct cause")
_WENT_DOWN: Final = re.compile(r"SIGQUIT received|Received sigquit|crashed with exit code")
_CRASHED: Final = re.compile(r"Subprocess \S+ \(pid=\d+\) crashed with exit code -?\d+")
_USAGE: Final = re.compile(r"[\w. -]+: error: (.+)")
_OUT_OF_MEMORY: Final = re.compile(
    r"out of memory|OutOfMemoryError|cudaErrorMemoryAllocation|_STATUS_ALLOC_FAILED"
    r"|Not enough memory|\bMemoryError\b|can't allocate memory"
)
_FINDINGS: Final = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"DFLASH .*head kept eager|ran the eager head", FindingCode.EAGER_DRAFT_HEAD),
        (r"Disable DFLASH draft cuda graph", FindingCode.NO_DRAFT_GRAPH),
        (r"Disable (?!DFLASH).*CUDA graph because|Cuda graph is disabled", FindingCode.NO_GRAPH),
        (r"DFLASH (Triton|fused) .*(failed|disabled)", FindingCode.KERNEL_FALLBACK),
        (r"non-greedy verification is unavailable", FindingCode.GREEDY_FALLBACK),
        (r"DFLASH block size mismatch", FindingCode.BLOCK_SIZE_MISMATCH),
        (
            r"Overriding draft attention backend|Setting attention backend to"
            r"|ttention.*Falling back to '",
            FindingCode.ATTENTION_OVERRIDDEN,
        ),
        (r"only supports speculative_\w+ == \d+; overriding", FindingCode.SPEC_OVERRIDDEN),
        (r"Max running requests is reset to", FindingCode.CONCURRENCY_RESET),
        (r"^'--[\w-]+' is deprecated", FindingCode.DEPRECATED_FLAG),
        (r"Failed to (load|execute) .*plugin", FindingCode.PLUGIN_FAILED),
        (r"KV cache pool is full", FindingCode.RETRACTED),
        (
            r"DeepGEMM JIT|JIT[- ](pre-?)?compil|\bCompiling\b|\b(?i:autotun(e|ing)\b)"
            r"|^(.*\r)?Capturing (batches|num tokens)|graph begin\.",
            FindingCode.COMPILING,
        ),
        (r"Health check failed", FindingCode.HEALTH_FAILED),
        (r"watchdog timeout", FindingCode.WATCHDOG),
    )
)
_NOISE: Final = ("INFO: ", "server_args=", "Ignore import error")
"""Lines of other programs' words (addresses, all arguments) that a finding could be misread in."""


_LONGEST: Final = 300
"""Characters of a line that a finding keeps; progress bars and argument lists run to thousands."""


@dataclass(slots=True)
class _Traceback:
    """A traceback that is being read."""

    at_unix_s: float | None
    fatal: bool
    frame: str | None = None


@dataclass(slots=True)
class LogParser:
    """Reads a log line by line; `log()` gives what is known so far."""

    tz: tzinfo | None = None
    _now: float | None = None
    _count: int = 0
    _open: dict[str, Phase] = field(default_factory=dict)
    _phases: list[Phase] = field(default_factory=list)
    _pools: list[Pool] = field(default_factory=list)
    _capacity: Capacity | None = None
    _draft_runner: dict[str, str] = field(default_factory=dict)
    _startup_s: dict[str, float] = field(default_factory=dict)
    _ready: float | None = None
    _decodes: list[DecodeBatch] = field(default_factory=list)
    _prefills: list[PrefillBatch] = field(default_factory=list)
    _findings: list[LogFinding] = field(default_factory=list)
    _traceback: _Traceback | None = None
    _chained: bool = False
    _failure: LogFailure | None = None
    _stopping: bool = False

    def feed(self, line: str) -> None:
        """Take one line, with or without its line end."""
        self._count += 1
        text = _ANSI.sub("", line).rstrip("\r\n")
        stamp = _STAMP.match(text)
        if stamp is None:
            self._plain(text)
            return
        self._now = self._time(stamp[1]) or self._now
        text = text[stamp.end() :]
        self._find(text)
        self._fate(text)
        if not _OTHER_RANK.search(stamp[2]):
            self._rank0(text)

    def log(self) -> ServerLog:
        """What the lines so far tell."""
        return ServerLog(
            phases=(*self._phases, *self._open.values()),
            pools=tuple(self._pools),
            capacity=self._capacity,
            draft_runner=dict(self._draft_runner),
            startup_s=dict(self._startup_s),
            ready_unix_s=self._ready,
            decodes=tuple(self._decodes),
            prefills=tuple(self._prefills),
            findings=tuple(self._findings),
            failure=self._failure,
            asked_to_stop=self._stopping,
        )

    def _time(self, text: str) -> float | None:
        try:
            moment = datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
            return moment.replace(tzinfo=self.tz).timestamp()
        except (ValueError, OverflowError, OSError):  # shaped like a stamp, yet no date: garbage
            return None

    def _plain(self, text: str) -> None:
        """A line without stamp: part of a traceback, or another program's."""
        if "Traceback (most recent call last)" in text:
            self._begin_traceback(fatal=False)
        elif self._traceback is not None:
            self._go_on(self._traceback, text)
        elif text.startswith(_CHAINED):
            self._chained = True
        elif (usage := _USAGE.fullmatch(text)) and self._ready is None:
            self._fail(None, usage[1], None, fatal=True)
        else:
            self._find(text)

    def _begin_traceback(self, *, fatal: bool) -> None:
        self._traceback = _Traceback(self._now, fatal)

    def _go_on(self, traceback: _Traceback, text: str) -> None:
        if frame := _FRAME.match(text):
            traceback.frame = f"{frame[1]}:{frame[2]} in {frame[3]}"
        elif not text.startswith((" ", "\t")) and (found := _EXCEPTION.match(text)):
            self._traceback = None
            self._fail(found[1], found[2] or "", traceback.frame, fatal=traceback.fatal)

    def _fail(self, exception: str | None, message: str, frame: str | None, *, fatal: bool) -> None:
        before = self._failure if self._chained else None
        self._chained = False
        status = Status.DIED_AT_START if self._ready is None else Status.DIED_IN_REQUEST
        if _OUT_OF_MEMORY.search(f"{exception}: {message}") or (
            before is not None and before.status is Status.OUT_OF_MEMORY
        ):
            status = Status.OUT_OF_MEMORY
        self._failure = LogFailure(
            status,
            exception,
            message,
            frame,
            at_unix_s=self._now,
            during=next(reversed(self._open), None),
            fatal=fatal or (before is not None and before.fatal),
        )

    def _fate(self, text: str) -> None:
        """Whether the server is told to stop, hits an exception, or goes down."""
        if text.startswith("SIGTERM received"):
            self._stopping = True
        elif "Traceback (most recent call last)" in text:
            self._begin_traceback(fatal="hit an exception" in text)
        elif not self._stopping and _WENT_DOWN.search(text):
            self._went_down(text)

    def _went_down(self, text: str) -> None:
        if self._failure is not None:
            self._failure = replace(self._failure, fatal=True)
            return
        crashed = _CRASHED.match(text)
        self._fail(None, text if crashed is None else crashed[0], None, fatal=True)

    def _find(self, text: str) -> None:
        if text.startswith(_NOISE) or text.startswith(("Decode batch", "Prefill batch")):
            return
        code = next((code for pattern, code in _FINDINGS if pattern.search(text)), None)
        starting = code is FindingCode.COMPILING and self._ready is None
        if code is not None and not starting:
            self._add_finding(code, text)

    def _add_finding(self, code: FindingCode, text: str) -> None:
        self._findings.append(LogFinding(code, self._now, self._count, text[:_LONGEST]))

    def _rank0(self, text: str) -> None:
        for prefix, read in _READERS:
            if text.startswith(prefix):
                read(self, text)
                return

    def _weights(self, text: str) -> None:
        if text.startswith("Load weight begin"):
            self._open["load weights"] = Phase("load weights", self._now)
        elif (begun := self._open.pop("load weights", None)) is not None:
            kind = _value(text, "type")
            name = begun.name if kind is None else f"load {kind}"
            self._close(replace(begun, name=name), text)

    def _capture(self, text: str) -> None:
        match = _CAPTURE.match(text)
        if match is None:
            return
        name = f"capture {match[1]} {match[2]}"
        if match[3] == "begin":
            width = _integer(text, "num_tokens_per_req")
            self._open[name] = Phase(name, self._now, None, None, width, _batch_sizes(text))
        elif (begun := self._open.pop(name, None)) is not None:
            # 0.5.17 lists the batch sizes where a capture begins, 0.5.23 where it ends
            self._close(replace(begun, batch_sizes=_batch_sizes(text) or begun.batch_sizes), text)

    def _close(self, phase: Phase, text: str) -> None:
        used = _number(text, "mem usage")
        self._phases.append(replace(phase, elapsed_s=_number(text, "elapsed"), used_gib=used))

    def _pool(self, text: str) -> None:
        sizes = [float(size) for size in re.findall(r"size: (\d+(?:\.\d+)?) ?GB", text)]
        count = re.search(r"(?:#tokens|max_mamba_cache_size): (\d+)", text)
        self._pools.append(
            Pool(
                kind=text.split(" ", 1)[0],
                size=None if count is None else int(count[1]),
                total_gib=sum(sizes) if sizes else None,
            )
        )

    def _limits(self, text: str) -> None:
        self._capacity = Capacity(
            max_total_num_tokens=_integer(text, "max_total_num_tokens"),
            max_running_requests=_integer(text, "max_running_requests"),
            context_len=_integer(text, "context_len"),
            chunked_prefill_size=_integer(text, "chunked_prefill_size"),
            available_gib=_number(text, r"available_\w+_mem"),
        )

    def _drafter(self, text: str) -> None:
        self._draft_runner.update(re.findall(r"(\w+)=([^,\s]+)", text))

    def _timings(self, text: str) -> None:
        pairs = re.findall(r"(\w+)=(\d+(?:\.\d+)?)", text)
        self._startup_s.update({name: float(seconds) for name, seconds in pairs})

    def _fired_up(self, text: str) -> None:
        self._ready = self._now

    def _decode(self, text: str) -> None:
        facts = _facts(text)
        running = _whole(facts.get("#running-req"))
        if running is None:
            return
        self._goes_on()
        batch = DecodeBatch(
            at_unix_s=self._now,
            running=running,
            queued=_whole(facts.get("#queue-req")),
            accept_length=_real(facts.get("accept len")),
            accept_rate=_real(facts.get("accept rate")),
            graph=_graph(facts),
            tok_per_s=_real(facts.get("gen throughput (token/s)")),
        )
        self._decodes.append(batch)
        if batch.graph is False and "cpu graph" not in facts:
            self._add_finding(FindingCode.EAGER_DECODE, text)

    def _prefill(self, text: str) -> None:
        facts = _facts(text)
        sequences = _whole(facts.get("#new-seq"))
        if sequences is None:
            return
        self._goes_on()
        self._prefills.append(
            PrefillBatch(
                at_unix_s=self._now,
                new_sequences=sequences,
                new_tokens=_whole(facts.get("#new-token")),
                cached_tokens=_whole(facts.get("#cached-token")),
                graph=_graph(facts),
                tok_per_s=_real(facts.get("input throughput (token/s)")),
            )
        )

    def _goes_on(self) -> None:
        """A batch after an exception shows that it was caught."""
        if self._failure is not None and not self._failure.fatal:
            self._add_finding(FindingCode.HANDLED_ERROR, str(self._failure))
            self._failure = None


_READERS: Final[tuple[tuple[str, Callable[[LogParser, str], None]], ...]] = (
    ("Decode batch", LogParser._decode),
    ("Prefill batch", LogParser._prefill),
    ("Load weight ", LogParser._weights),
    ("Capture ", LogParser._capture),
    ("KV Cache is allocated", LogParser._pool),
    ("Mamba Cache is allocated", LogParser._pool),
    ("max_total_num_tokens=", LogParser._limits),
    ("Initialized DFLASH draft runner", LogParser._drafter),
    ("Engine startup timings", LogParser._timings),
    ("The server is fired up", LogParser._fired_up),
)


@cache
def _assignment(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{name}=([^,\s]+)")


def _value(text: str, name: str) -> str | None:
    """The word after `name=`."""
    match = _assignment(name).search(text)
    return None if match is None else match[1]


def _number(text: str, name: str) -> float | None:
    return _real(_value(text, name))


def _integer(text: str, name: str) -> int | None:
    return _whole(_value(text, name))


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None


def _real(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"-?\d{1,18}(\.\d+)?", text):
        return None
    return float(text)


def _batch_sizes(text: str) -> tuple[int, ...]:
    match = re.search(r"\bbs=\[([\d, ]*)\]", text)
    return () if match is None else tuple(int(size) for size in re.findall(r"\d+", match[1]))


def _facts(text: str) -> dict[str, str]:
    """`a: 1, b: 2` as a mapping; what has no colon is left out."""
    pairs = (part.partition(": ") for part in text.split(", "))
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _graph(facts: dict[str, str]) -> bool | None:
    """Whether the batch ran as a graph; the label names the device's kind of graph."""
    for key, value in facts.items():
        if key.endswith(" graph") and value in ("True", "False"):
            return value == "True"
    return None
