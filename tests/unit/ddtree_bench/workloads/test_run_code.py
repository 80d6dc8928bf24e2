"""What generated code may do, and what it may not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddtree_bench.errors import MachineError
from ddtree_bench.prompts import Prompt
from ddtree_bench.workloads import run_code
from ddtree_bench.workloads.judging import judged, require_judges
from ddtree_bench.workloads.run import measure_cell
from ddtree_bench.workloads.run_code import fault_of_program, require_isolation

TESTED = Prompt.model_validate(
    {
        "id": "p",
        "turns": ["Write f."],
        "check": {"kind": "python_tests", "entry_point": "f", "tests": "def check(f): assert f()"},
    }
)


@pytest.fixture
def no_unshare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that cannot take the network away."""
    run_code.without_network.cache_clear()
    monkeypatch.setattr(run_code.shutil, "which", lambda _: None)
    yield
    run_code.without_network.cache_clear()


def test_a_program_that_ends_has_no_fault() -> None:
    """Also one that prints much: nobody reads it."""
    assert fault_of_program("import math, typing\nprint('x' * 1_000_000)") is None


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
        ("import sys\nsys.exit(0)", "SystemExit"),
        ("import os\nos._exit(0)", "ended before its tests did"),
        ("x = 'a' * (1 << 31)", "MemoryError"),
        ("import socket\nsocket.socket()", "socket.__new__ is refused"),
        ("import os\nos.system('true')", "os.system is refused"),
        ("import subprocess\nsubprocess.run(['true'])", "subprocess.Popen is refused"),
        ("import os\nos.fork()", "os.fork is refused"),
        ("import ctypes", "ctypes.dlopen is refused"),
        ("import os\nos.kill(1, 0)", "os.kill is refused"),
    ],
)
def test_what_a_program_must_not_do(program: str, fault: str) -> None:
    """Leaving early is no pass; whatever reaches out of the process is refused."""
    told = fault_of_program(program)
    assert told is not None
    assert fault in told


@pytest.mark.parametrize("call", ["open({path!r}, 'w')", "__import__('os').remove({path!r})"])
def test_files_are_left_as_they_are(tmp_path: Path, call: str) -> None:
    """Neither written nor removed."""
    file = tmp_path / "kept"
    file.write_text("as it was", encoding="utf-8")
    told = fault_of_program(call.format(path=str(file)))
    assert told is not None
    assert "refused" in told
    assert file.read_text(encoding="utf-8") == "as it was"


def test_the_environment_does_not_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API key of the user is no business of generated code."""
    monkeypatch.setenv("SOME_API_KEY", "secret")
    assert fault_of_program("import os\nassert 'SOME_API_KEY' not in os.environ") is None


def test_an_endless_program_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock, should it not use its CPU time up."""
    monkeypatch.setattr(run_code, "WALL_S", 0.3)
    assert fault_of_program("import time\nwhile True: time.sleep(1)") == "not done after 0.3 s"


@pytest.mark.usefixtures("no_unshare")
def test_code_is_refused_where_the_network_stays(scripted: Any, tokenizer: Any, task: Any) -> None:
    """`unisolated` overrides it, and without tests nothing is needed."""
    with pytest.raises(MachineError, match="run_code: unisolated"):
        require_judges(task(TESTED, run_code=True))
    asked = task(TESTED, run_code="unisolated")
    require_judges(asked)
    client = scripted(by=lambda _: "def f(): return True")
    (record,) = judged(asked, measure_cell(client, tokenizer, asked))
    assert record.check is not None
    assert (record.check.kind, record.check.valid) == ("python_tests", True)
    require_judges(task(Prompt(id="q", turns=("Hi.",)), run_code=True))


@pytest.mark.usefixtures("no_unshare")
def test_nothing_is_required_where_nothing_is_run() -> None:
    """The default works on every machine."""
    require_isolation(False)
