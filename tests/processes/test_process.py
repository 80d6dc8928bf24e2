"""Real processes: what the server does, and what is left of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from fakes import FAKE_ENGINE

from ddtree_bench.errors import MachineError
from ddtree_bench.server.process import (
    Command,
    ServerProcess,
    exit_sentence,
    free_port,
    port_is_free,
)

pytestmark = pytest.mark.process
READY = "fired up"


def python(code: str, tmp_path: Path, **options) -> ServerProcess:
    """A process that runs Python code."""
    command = Command((sys.executable, "-c", code), {"PATH": os.environ["PATH"]})
    return ServerProcess(command, tmp_path / "log", free_port(), **options)


def fake(tmp_path: Path, *args: str, **options) -> ServerProcess:
    """The fake server."""
    port = free_port()
    argv = (FAKE_ENGINE, "-m", "ddtree.server", "--port", str(port), *args)
    return ServerProcess(Command(argv, dict(os.environ)), tmp_path / "log", port, **options)


def wait_for_log(server: ServerProcess, words: str) -> None:
    """Return when the server has printed the words; fails if it ends before."""
    while words not in server.log_tail():
        assert server.wait_for_exit(0.02) is None, server.log_tail()


def test_a_server_starts_and_leaves_nothing(tmp_path):
    """Process, port, threads: as before."""
    threads = threading.active_count()
    with fake(tmp_path) as server:
        wait_for_log(server, READY)
        assert server.exit_code() is None
        assert not port_is_free(server.port)
    assert server.exit_code() == -signal.SIGTERM
    assert port_is_free(server.port)
    assert threading.active_count() == threads


def test_stop_may_be_called_twice_and_before_start(tmp_path):
    """Stopping is idempotent."""
    server = fake(tmp_path)
    server.stop()
    server.start()
    server.stop()
    server.stop()
    assert server.exit_code() is not None


def test_an_exit_code_is_seen_and_told(tmp_path):
    """A process that ends by itself is noticed with its code and its last words."""
    with python("print('bye'); raise SystemExit(3)", tmp_path) as server:
        assert server.wait_for_exit(10) == 3
        assert server.exit_code() == 3
        assert server.log_tail() == "bye"
    assert exit_sentence(3) == "exit code 3"


def test_a_signal_is_told_by_name(tmp_path):
    """A server that the kernel killed says so."""
    with python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", tmp_path) as server:
        assert exit_sentence(server.wait_for_exit(10)) == "killed by SIGKILL"


def test_a_server_deaf_to_sigterm_is_killed(tmp_path):
    """SIGKILL after the grace."""
    with fake(tmp_path, "--ignore-sigterm", grace_s=0.3) as server:
        wait_for_log(server, READY)
    assert server.exit_code() == -signal.SIGKILL
    assert port_is_free(server.port)


def test_a_child_that_left_the_group_is_found(tmp_path):
    """`setsid` does not hide a process: its environment gives it away."""
    pidfile = tmp_path / "pid"
    with fake(tmp_path, "--detach-child", str(pidfile)) as server:
        wait_for_log(server, READY)
        child = psutil.Process(int(pidfile.read_text()))
        assert child.is_running()
        assert os.getpgid(child.pid) != os.getpgid(server._popen.pid)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_child_outlives_its_server_but_not_the_stop(tmp_path):
    """A server that died leaves workers behind; they go, too."""
    pidfile = tmp_path / "pid"
    with fake(tmp_path, "--detach-child", str(pidfile), "--die-at-start", "3") as server:
        assert server.wait_for_exit(10) == 3
        child = psutil.Process(int(pidfile.read_text()))
        assert child.is_running()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_megabyte_of_output_blocks_nobody(tmp_path):
    """Output goes to a file, not into a pipe that nobody reads."""
    with fake(tmp_path, "--print-bytes", "1000000") as server:
        wait_for_log(server, READY)
    assert (tmp_path / "log").stat().st_size > 1_000_000


def test_another_server_is_left_alone(tmp_path):
    """Only processes of this very server are ended."""
    with fake(tmp_path / "a") as one, fake(tmp_path / "b") as other:
        wait_for_log(other, READY)
        one.stop()
        assert other.exit_code() is None


def test_stdin_is_empty(tmp_path):
    """A server that asks a question gets no answer instead of the terminal."""
    with python("import sys; print(len(sys.stdin.read()))", tmp_path) as server:
        assert server.wait_for_exit(10) == 0
        assert server.log_tail() == "0"


def test_a_program_that_is_missing_is_the_machines_fault(tmp_path):
    """No traceback of Popen, and the log is where it should be."""
    server = ServerProcess(Command(("/not/here",), {}), tmp_path / "log", free_port())
    with pytest.raises(MachineError, match="cannot run /not/here"), server:
        pytest.fail("it must not start")


def test_a_port_that_stays_taken_is_told(tmp_path):
    """The next server must not be measured beside something else on its port."""
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        command = Command((sys.executable, "-c", "pass"), {})
        port = squatter.getsockname()[1]
        server = ServerProcess(command, tmp_path / "log", port, settle_s=0.2)
        server.start()
        with pytest.raises(MachineError, match=f"port {port} is still taken"):
            server.stop()
    server.stop()


def test_an_error_in_the_block_stops_the_server(tmp_path):
    """Whatever ends the block, the server goes with it."""
    server = fake(tmp_path)
    with pytest.raises(KeyError), server:
        raise KeyError
    assert server.exit_code() is not None


def test_a_server_dies_with_a_parent_that_was_killed(tmp_path):
    """SIGKILL gives the parent no time to clean up; the kernel tells the server."""
    code = (
        "import sys, pathlib\n"
        "from ddtree_bench.server.process import *\n"
        "argv = (sys.executable, '-c', 'import signal; print(1, flush=True); signal.pause()')\n"
        f"server = ServerProcess(Command(argv, {{}}), pathlib.Path({str(tmp_path / 'log')!r}), 1)\n"
        "server.start()\n"
        "print(server._popen.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    gone, alive = psutil.wait_procs([server], timeout=10)
    assert gone
    assert not alive
