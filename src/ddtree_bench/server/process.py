"""Start a server as a process group, notice its end, and leave nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ddtree_bench.errors import MachineError
from ddtree_bench.server.deadline import Deadline
from ddtree_bench.server.last_words import tail
from ddtree_bench.server.log import LogFailure
from ddtree_bench.server.log_file import failure_in

MARKER = "DDTREE_BENCH_PROCESS"
"""Environment variable by which children are found that left the server's process group."""

_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before any fork: a forked child must not load libraries


@dataclass(frozen=True, slots=True)
class Command:
    """What is started: a list of arguments (no shell sees them) and the whole environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class ServerProcess:
    """One server as a process group; a context manager that starts and stops it.

    Everything the server prints goes to `log_path`. The server gets SIGTERM when this process dies,
    however it dies. When it is stopped, `grace_s` pass between SIGTERM and SIGKILL, and the kernel
    has `settle_s` to end what was killed, and as long again to free the port.
    """

    def __init__(
        self,
        command: Command,
        log_path: Path,
        port: int,
        *,
        grace_s: float = 15.0,
        settle_s: float = 15.0,
    ) -> None:
        self.command = command
        self.log_path = log_path
        self.port = port
        self.grace_s = grace_s
        self.settle_s = settle_s
        self._mark = f"{MARKER}={uuid.uuid4().hex}"
        self._popen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except BaseException:
            self.stop()  # a signal came while stopping; what was begun must be finished
            raise

    def start(self) -> None:
        """Start the process; raises MachineError if the program cannot be run."""
        if self._popen is not None:
            raise RuntimeError("this server was started before")
        name, _, value = self._mark.partition("=")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()
        try:
            with self.log_path.open("wb") as log:
                self._popen = subprocess.Popen(
                    list(self.command.argv),
                    env={**self.command.env, name: value},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=lambda: _die_with(parent),
                )
        except OSError as error:
            raise MachineError(
                f"cannot run {self.command.argv[0]}: {error.strerror}",
                remedy="check `python` of this server; `make` sets the environments up",
            ) from error

    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the server runs."""
        return None if self._popen is None else self._popen.poll()

    def wait_for_exit(self, seconds: float) -> int | None:
        """The exit code as soon as there is one; None if the server still runs after `seconds`."""
        if self._popen is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._popen.wait(seconds)
        return None

    def log_tail(self) -> str:
        """The last lines that the server printed."""
        return tail(self.log_path)

    def failure(self) -> LogFailure | None:
        """The exception or death that the log tells of; None if there is none in it."""
        return failure_in(self.log_path)

    def stop(self) -> None:
        """Stop the group and every marked process, and wait until the port is free; idempotent.

        Raises MachineError if a process survives SIGKILL or something still listens on the port:
        the next server would be measured beside it.
        """
        self._signal(signal.SIGTERM)
        if not self._gone_by(Deadline.after(self.grace_s)):
            deadline = Deadline.after(self.settle_s)
            self._signal(signal.SIGKILL)
            # one that forked between the scan and the signal is met in the next round
            while not self._gone_by(Deadline.after(_POLL_S)):
                if deadline.passed:
                    raise MachineError(
                        f"processes {sorted(self._living())} do not end, not even by SIGKILL",
                        remedy="see what they wait for (`cat /proc/PID/wchan`)",
                    )
                self._signal(signal.SIGKILL)
        self._wait_for_port(Deadline.after(self.settle_s))

    def _signal(self, number: signal.Signals) -> None:
        # the leader's id is ours until poll() or wait() has taken its exit code, not later
        if self._popen is not None and self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)
        for pid in self._living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _gone_by(self, deadline: Deadline) -> bool:
        while True:
            leader_runs = self._popen is not None and self._popen.poll() is None
            if not leader_runs and not self._living():
                return True
            if deadline.passed:
                return False
            time.sleep(min(_POLL_S, deadline.left_s))

    def _living(self) -> set[int]:
        mark = self._mark.encode()
        processes = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return {pid for pid in processes if _carries(pid, mark)}

    def _wait_for_port(self, deadline: Deadline) -> None:
        while not port_is_free(self.port):
            if deadline.passed:
                raise MachineError(
                    f"port {self.port} is still taken after its server was stopped",
                    remedy=f"see who listens: `ss -ltnp sport = :{self.port}`",
                )
            time.sleep(_POLL_S)


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is no listener
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def exit_sentence(code: int) -> str:
    """An exit code in words.

    >>> exit_sentence(3), exit_sentence(-9)
    ('exit code 3', 'killed by SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    return f"killed by {signal.Signals(-code).name}"


def _die_with(parent: int) -> None:
    """Ask the kernel for SIGTERM when the parent ends (runs in the child, before exec)."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the request
        os._exit(1)


def _carries(pid: int, mark: bytes) -> bool:
    """Whether a process lives and has the mark in its environment; other users' have not."""
    try:
        marked = mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        # the state stands behind the name, which may hold brackets and blanks
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return marked and state not in (b"Z", b"X")
