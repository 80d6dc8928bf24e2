import os
import subprocess
import sys
from pathlib import Path

import pytest

import ddtree_bench
from ddtree_bench.session.interrupts import Guardian, Interrupted, _is_snakemake

WITH_SOURCE = {**os.environ, "PYTHONPATH": str(Path(ddtree_bench.__file__).parents[1])}


def test_an_interrupt_exits_with_the_code_that_shells_use():
    """128 + 15 = 143, and `except Exception` does not swallow it."""
    assert Interrupted(15).code == 143
    assert not isinstance(Interrupted(15), Exception)


def test_a_guardian_is_one_process_and_not_just_a_number():
    """The same id with another start time is another process."""
    code = "from ddtree_bench.session.interrupts import Guardian; print(Guardian.find())"
    argv = [sys.executable, "-c", code]
    out = subprocess.run(
        argv, env=WITH_SOURCE, capture_output=True, text=True, timeout=60, check=True
    )
    assert out.stdout == "None\n"  # a person started it
    me = Guardian(os.getpid(), born=_born())
    assert not me.is_gone()
    assert Guardian(me.pid, born=b"0").is_gone()
    assert Guardian(2**22 + 1, born=b"0").is_gone()  # above the kernel's largest id


def _born() -> bytes:
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - /proc
        return file.read().rpartition(b")")[2].split()[19]


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        (b"/venv/bin/python\0/venv/bin/snakemake\0--cores\0001\0", True),
        (b"python\0-m\0snakemake\0all\0", True),
        (b"python\0/lib/site-packages/snakemake/__main__.py\0", True),
        (b"bash\0-c\0python -m ddtree_bench.session --spec snakemake/spec.json\0", False),
        (b"vim\0/data/snakemake-notes\0", False),
        (b"", False),
    ],
)
def test_snakemake_is_known_by_its_program(line, is_one):
    """A shell that runs a job mentions many words; it is not the one that waits."""
    assert _is_snakemake(line) == is_one


@pytest.mark.process
def test_the_watch_ends_before_the_interpreter_does():
    """An alarm during the interpreter's own teardown would kill a session that has succeeded."""
    program = (
        "import os, threading, pandas\n"
        "from ddtree_bench.session import interrupts\n"
        "interrupts._LOOK_EVERY_S = 0.004\n"
        "interrupts._watch(interrupts.Guardian(os.getpid(), interrupts._stat(os.getpid())[19]))\n"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, env=WITH_SOURCE, timeout=60, check=False)
    assert done.returncode == 0
