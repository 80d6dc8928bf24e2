"""From a configuration to a server that is ready to be measured, and back to nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ddtree_bench.chat_template import PromptTokenizer
from ddtree_bench.client.client import Client
from ddtree_bench.errors import MachineError, RequestError, ServerError
from ddtree_bench.findings import FindingCode
from ddtree_bench.records import Finding, Launch
from ddtree_bench.server.deadline import Deadline
from ddtree_bench.server.death import death_of, exit_code_after
from ddtree_bench.server.engines import HOST, command, recorded_environment
from ddtree_bench.server.identity import check_identity, check_verify_width, kept_facts
from ddtree_bench.server.log import ServerLog
from ddtree_bench.server.log_file import LogFile, counted, startup_of
from ddtree_bench.server.machine import gpu_memory_used_mib
from ddtree_bench.server.process import Command, ServerProcess, free_port
from ddtree_bench.server.readiness import wait_until_ready
from ddtree_bench.server.running import Attached, Running
from ddtree_bench.session.spec import SessionSpec
from ddtree_bench.session.warmup import (
    WARMUP_TEXT,
    WarmedUp,
    concurrencies,
    longest_text,
    seconds_per_token,
    warm_up,
)
from ddtree_bench.session.watch import Watch, watching
from ddtree_bench.status import Status

_LOG = logging.getLogger(__name__)
_GPU_WAIT_S = 60.0
_GPU_SLACK_MIB = 512
_GPU_POLL_S = 0.5
_FACTS_TIMEOUT_S = 30.0
_NOT_FLUSHED = Finding(code=FindingCode.CACHE_UNKNOWN, detail="`may_flush` is not set")


@dataclass(slots=True)
class LaunchNotes:
    """What is known about a launch so far; filled on the way, because it may end anywhere."""

    spec: SessionSpec
    attempt: int
    log_path: Path
    machine: dict[str, Any]
    started_unix_s: float = field(default_factory=time.time)
    argv: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    ready_after_s: float | None = None
    warmup_requests: int = 0
    logprob_requests: int = 0
    logprob_s: float | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    log: LogFile = field(init=False)

    def __post_init__(self) -> None:
        self.log = LogFile(self.log_path)

    @property
    def attached(self) -> bool:
        """Whether somebody else started the server."""
        return self.spec.server.engine == "attach"

    @property
    def declared(self) -> frozenset[FindingCode]:
        """Findings that are no surprise, because the configuration asks for them."""
        no_graphs = self.identity.get("disable_cuda_graph") is True
        codes = {FindingCode.EAGER_DECODE, FindingCode.NO_GRAPH, FindingCode.NO_DRAFT_GRAPH}
        return frozenset(codes if no_graphs else ())

    def compilations(self) -> int:
        """Lines of the log so far that tell of compilation or capture after the start."""
        if self.attached:
            return 0
        return sum(found.code is FindingCode.COMPILING for found in self.log.read().findings)

    def record(self, status: Status, detail: str = "", log_tail: str = "") -> Launch:
        """The notes as a record of how the launch ended."""
        log = None if self.attached or not self.argv else self.log.read()
        said = () if log is None else counted(log.findings, self.declared)
        return Launch(
            protocol=self.spec.protocol_version,
            run=self.spec.run,
            server=self.spec.name,
            launch=self.spec.launch,
            attempt=self.attempt,
            status=status,
            detail=detail,
            log_tail=log_tail,
            log_path=None if self.attached else str(self.log_path),
            argv=self.argv,
            environment=self.environment,
            started_unix_s=self.started_unix_s,
            ready_after_s=self.ready_after_s,
            ended_unix_s=time.time(),
            warmup_requests=self.warmup_requests,
            logprob_requests=self.logprob_requests,
            logprob_s=self.logprob_s,
            identity=self.identity,
            machine={
                **self.machine,
                "prompts": dict(self.spec.prompts_sha256),
                "replies": dict(self.spec.replies_sha256),
            },
            startup=None if log is None else startup_of(log),
            findings=(*said, *self.findings),
        )


@dataclass(frozen=True, slots=True)
class Live:
    """A server that is ready, identified and warm."""

    server: Running
    client: Client
    tokenizer: PromptTokenizer
    watch: Watch = field(default_factory=Watch)


@contextlib.contextmanager
def launched(notes: LaunchNotes) -> Iterator[Live]:
    """A live server within the block, nothing of it afterwards.

    Raises:
        ServerError: it died, was not ready in time, is another one, or failed in its warm-up.
        MachineError: something is missing here, or the server could not be removed.
    """
    spec = notes.spec
    tokenizer = PromptTokenizer.load(Path(spec.server.tokenizer_path))
    prompt = _rendered(tokenizer, WARMUP_TEXT)
    with contextlib.ExitStack() as stack:
        server, base_url, start = _running(notes, stack)
        client = stack.enter_context(
            Client(
                base_url,
                model=spec.name,
                timeout_s=spec.protocol.request_timeout_s,
                api_key=api_key(spec),
            )
        )
        deadline = Deadline.after(spec.server.startup_timeout_s)
        started_s = time.monotonic()
        wait_until_ready(server, client, prompt, deadline)
        notes.ready_after_s = time.monotonic() - started_s
        _identify(client, notes)
        _warm(server, client, tokenizer, notes)
        yield Live(server, client, tokenizer, _watch(notes, start, stack))


def _watch(notes: LaunchNotes, start: Command | None, stack: contextlib.ExitStack) -> Watch:
    """Eyes on what we started; of somebody else's server neither log nor processes are known."""
    if start is not None:
        return stack.enter_context(watching(notes.log, start.env, notes.declared))
    unknown = notes.spec.protocol.flush_cache and not notes.spec.flushes_cache
    return Watch(always=(_NOT_FLUSHED,) if unknown else ())


def _running(
    notes: LaunchNotes, stack: contextlib.ExitStack
) -> tuple[Running, str, Command | None]:
    """The server, where it answers, and how it was started; the stack stops it."""
    spec = notes.spec
    if notes.attached:
        return Attached(), str(spec.server.base_url), None
    port = free_port()
    start = command(spec.name, spec.server, port, os.environ)
    notes.argv = start.argv
    notes.environment = recorded_environment(start.env)
    used_before_mib = gpu_memory_used_mib(start.env)
    if used_before_mib is not None:
        # what others hold is part of it; the server must leave as much as it found
        notes.machine = {**notes.machine, "gpu_memory_used_before_mib": used_before_mib}
        stack.callback(_wait_for_gpu, notes, start, used_before_mib + _GPU_SLACK_MIB)
    server = stack.enter_context(ServerProcess(start, notes.log_path, port))
    return server, f"http://{HOST}:{port}", start


def api_key(spec: SessionSpec) -> str | None:
    """The key that the environment holds for a server that others started.

    Raises MachineError if it is not set.
    """
    name = spec.server.api_key_env
    if name is None:
        return None
    if name not in os.environ:
        raise MachineError(
            f"the environment variable {name} is not set",
            where=f"servers.{spec.name}.api_key_env",
            remedy=f"export {name} before the run",
        )
    return os.environ[name]


def facts_of_attached(spec: SessionSpec) -> dict[str, Any]:
    """What a server that others started says of itself, for the keys of its cells; {} for ours.

    Restarted with other flags at the same address it is another server, and the configuration does
    not know. One that does not answer is like no other: no stored cell is taken for its own.
    """
    if spec.server.engine != "attach":
        return {}
    url, key = str(spec.server.base_url), api_key(spec)
    with Client(url, model=spec.name, timeout_s=_FACTS_TIMEOUT_S, api_key=key) as client:
        try:
            facts = kept_facts(spec.server, client.server_info())
        except RequestError:
            return {"identity": f"not known at {time.time()}"}
    return {f"identity.{name}": fact for name, fact in facts.items()}


def _identify(client: Client, notes: LaunchNotes) -> None:
    spec = notes.spec
    try:
        info = client.server_info()
        if notes.attached:
            client.model = client.models()[0]  # whoever started it chose the name
    except RequestError as error:
        raise ServerError(
            Status.WRONG_SERVER, f"it does not say what it is: {error.what}"
        ) from error
    notes.identity = kept_facts(spec.server, info)
    check_identity(spec.name, spec.server, info)
    if not notes.attached:
        log = notes.log.read()
        notes.identity |= _facts_of_log(log)
        told = info.get("speculative_num_draft_tokens")
        check_verify_width(spec.name, spec.server, told, log.verify_width)


def _facts_of_log(log: ServerLog) -> dict[str, Any]:
    """What only the log tells of a running server, under names of their own."""
    sizes = {
        f"log.{phase.name}.batch_sizes": list(phase.batch_sizes)
        for phase in log.phases
        if phase.batch_sizes
    }
    width = {} if log.verify_width is None else {"log.verify_width": log.verify_width}
    drafter = {f"log.drafter.{name}": value for name, value in log.draft_runner.items()}
    return {**sizes, **width, **drafter}


def _rendered(tokenizer: PromptTokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.render([{"role": "user", "content": text}]))


def _warm(server: Running, client: Client, tokenizer: PromptTokenizer, notes: LaunchNotes) -> None:
    """Warm up for every shape; an unsteady end is found, a failed request raises ServerError."""
    try:
        unsteady = [warm.said for warm in _warm_ups(client, tokenizer, notes) if not warm.steady]
    except RequestError as error:
        code = exit_code_after(server, error.status)
        if code is not None:
            raise death_of(server, code, Status.DIED_IN_WARMUP) from error
        raise ServerError(
            error.status, f"in the warm-up: {error.what}", log_tail=server.log_tail()
        ) from error
    if unsteady:
        said = "; ".join(unsteady)
        _LOG.warning("%s: speed not steady %s", notes.spec.name, said)
        notes.findings.append(Finding(code=FindingCode.NOT_STEADY, detail=said))


def _warm_ups(client: Client, tokenizer: PromptTokenizer, notes: LaunchNotes) -> Iterator[WarmedUp]:
    """A request of the longest prompt's length, then steady speed at each concurrency."""
    spec, settings = notes.spec, notes.spec.protocol.warmup
    prompt, longest = _rendered(tokenizer, WARMUP_TEXT), longest_text(spec)
    if longest is not None:
        seconds_per_token(client, _rendered(tokenizer, longest), settings.max_new_tokens)
        notes.warmup_requests += 1
    for concurrency in concurrencies(spec):
        ask = partial(seconds_per_token, client, prompt, settings.max_new_tokens, concurrency)
        warm = warm_up(ask, settings, concurrency, notes.compilations)
        notes.warmup_requests += warm.requests
        yield warm


def _wait_for_gpu(notes: LaunchNotes, start: Command, allowed_mib: int) -> None:
    """Wait until the driver has taken the memory back; the next server would find too little."""
    deadline = Deadline.after(_GPU_WAIT_S)
    used_mib = gpu_memory_used_mib(start.env)
    while used_mib is not None and used_mib > allowed_mib and not deadline.passed:
        time.sleep(_GPU_POLL_S)
        used_mib = gpu_memory_used_mib(start.env)
    if used_mib is None or used_mib <= allowed_mib:
        return
    said = f"{used_mib} MiB {_GPU_WAIT_S:g} s later, {allowed_mib} allowed"
    _LOG.warning("GPU memory is still in use: %s", said)
    notes.findings.append(Finding(code=FindingCode.GPU_MEMORY_HELD, detail=said))
