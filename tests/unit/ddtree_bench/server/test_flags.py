"""Flags are judged before a server is started: against a recorded list, and by asking."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import pytest

from ddtree_bench.errors import ConfigError, MachineError
from ddtree_bench.server.flags import KnownFlags, Option, probe_flags, unknown_flags

RECORDED = Path(__file__).parents[3] / "fixtures" / "sglang-0.5.17-options.json"
ANSWER = {
    "version": "9.9",
    "options": [{"names": ["--tp", "--tp-size"], "nargs": None, "choices": None}],
    "algorithms": ["DFLASH"],
}


@pytest.fixture(scope="module")
def known() -> KnownFlags:
    """What SGLang 0.5.17 said about itself."""
    return KnownFlags.model_validate_json(RECORDED.read_text())


def wrongs(known: KnownFlags, *args: str) -> list[str]:
    """What is wrong with a command line."""
    return [f.what for f in unknown_flags(args, known, file="c.yaml", key="servers.x.args")]


def fake_python(folder: Path, body: str) -> Path:
    """An interpreter that runs this shell script whatever it is asked."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def answering(answer: Mapping[str, object]) -> str:
    """Shell lines that print noise, then the marked answer, then noise."""
    line = "ddtree-bench options: " + json.dumps(answer)
    return f"echo importing\ncat <<'END'\n{line}\nEND\necho bye"


def test_sound_command_line(known: KnownFlags) -> None:
    """Flags with values, with `=`, without values and with several have no fault."""
    args = [
        "--speculative-algorithm",
        "dflash",
        "--mem-fraction-static=0.8",
        "--disable-radix-cache",
        "--cuda-graph-bs-decode",
        "1",
        "2",
        "4",
        "--random-seed",
        "-1",
        "--attention-backend",
        "triton",
    ]
    assert wrongs(known, *args) == []


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--atention-backend", "triton"], "did you mean `--attention-backend`?"),
        (["--speculative-algo", "DFLASH"], "abbreviations are not taken, write `--speculative-al"),
        (["--speculative-ddtree-budget", "15"], "is a plug-in or a fork missing?"),
        (["--attention-backend", "tritn"], 'does not take `tritn`; did you mean "triton"?'),
        (["--speculative-algorithm", "DDTREE"], "SGLang 0.5.17 has no algorithm `DDTREE`"),
        (["--disable-radix-cache", "true"], "takes no value, got ['true']"),
        (["--page-size"], "takes one value, got []"),
        (["--cuda-graph-bs-decode"], "takes at least one value"),
        (["triton", "--trust-remote-code"], "`triton` belongs to no flag"),
    ],
)
def test_faults_say_what_to_write(known: KnownFlags, args: list[str], said: str) -> None:
    """One fault, and it holds the remedy."""
    (what,) = wrongs(known, *args)
    assert said in what


def test_renamed_flags_both_ways() -> None:
    """A flag of an older or a newer SGLang than the installed one is translated."""

    def has(*names: str) -> KnownFlags:
        options = tuple(Option(names=(name,), nargs=None, choices=None) for name in names)
        return KnownFlags(version="0", options=options, algorithms=())

    old, new = "--mamba-scheduler-strategy", "--mamba-radix-cache-strategy"
    assert wrongs(has(new), old, "auto")[0].endswith(f"it is called `{new}` now")
    assert wrongs(has(old), new, "auto")[0].endswith(f"this version still calls it `{old}`")
    prefill = "--cuda-graph-backend-prefill"
    (what,) = wrongs(has(prefill), "--disable-piecewise-cuda-graph")
    assert what.endswith(f"it is called `{prefill}=disabled` now")


def test_place_of_a_fault(known: KnownFlags) -> None:
    """A fault names file, key and the argument's place in the list, as ConfigError shows it."""
    faults = unknown_flags(
        ["--page-size", "1", "--nope"], known, file="config.yaml", line=7, key="servers.x.args"
    )
    assert "config.yaml:7 servers.x.args[2]\n  SGLang 0.5.17 has no flag `--nope`" in str(
        ConfigError(faults)
    )


def test_order_of_flags_is_irrelevant(known: KnownFlags) -> None:
    """The same flags in another order have the same faults."""
    pairs = [["--page-sise", "1"], ["--attention-backend", "no"], ["--disable-radix-cache"]]
    forward = wrongs(known, *chain(*pairs))
    assert sorted(forward) == sorted(wrongs(known, *chain(*pairs[::-1])))
    assert len(forward) == 2


@pytest.mark.process
def test_probe_finds_the_answer_in_noise(tmp_path: Path) -> None:
    """What libraries print while they are imported does not matter."""
    known = probe_flags(fake_python(tmp_path, answering(ANSWER)))
    assert known == KnownFlags.model_validate(ANSWER)


@pytest.mark.process
def test_probe_asks_once_until_the_interpreter_changes(tmp_path: Path) -> None:
    """The import takes seconds, so an unchanged interpreter is asked once."""
    count = tmp_path / "count"
    python = fake_python(tmp_path, f"echo x >> {count}\n{answering(ANSWER)}")
    assert probe_flags(python) is probe_flags(python)
    assert count.read_text().count("x") == 1
    os.utime(python, (1, 1))
    probe_flags(python)
    assert count.read_text().count("x") == 2


@pytest.mark.process
def test_probe_gives_the_environment(tmp_path: Path) -> None:
    """Plug-ins are chosen by the server's environment, so the probe runs in it."""
    python = fake_python(tmp_path, f'[ "$SGLANG_PLUGINS" = ddtree ] || exit 3\n{answering(ANSWER)}')
    path = {"PATH": os.environ["PATH"]}
    assert probe_flags(python, env={**path, "SGLANG_PLUGINS": "ddtree"}).version == "9.9"
    with pytest.raises(MachineError, match="exit code 3"):
        probe_flags(python, env=path)


@pytest.mark.process
def test_probe_without_sglang(tmp_path: Path) -> None:
    """The last line of what went wrong is in the message, with interpreter and remedy."""
    python = fake_python(tmp_path, "echo ModuleNotFoundError: No module named sglang >&2; exit 1")
    with pytest.raises(MachineError, match="No module named sglang") as caught:
        probe_flags(python)
    assert str(python) in str(caught.value)
    assert "try: install SGLang" in str(caught.value)


@pytest.mark.process
@pytest.mark.parametrize("present", [True, False])
def test_probe_of_no_interpreter(tmp_path: Path, present: bool) -> None:
    """A file that cannot be run, or none at all, is the machine's fault and named."""
    python = tmp_path / "python"
    if present:
        python.write_text("not executable")
    with pytest.raises(MachineError, match=r"cannot (use|run) the interpreter") as caught:
        probe_flags(python)
    assert caught.value.where == str(python)


@pytest.mark.process
def test_probe_is_bounded_and_leaves_nothing_running(tmp_path: Path) -> None:
    """An import that hangs, with a child that holds the pipe, ends with its whole group."""
    pid_file = tmp_path / "pid"
    python = fake_python(tmp_path, f"sleep 600 &\necho $! > {pid_file}\nwait")
    with pytest.raises(MachineError, match=r"within 2 s"):
        probe_flags(python, timeout_s=2)
    child = Path("/proc") / pid_file.read_text().strip() / "stat"
    deadline = time.monotonic() + 10
    while _runs(child) and time.monotonic() < deadline:
        os.sched_yield()
    assert not _runs(child)


def _runs(stat_file: Path) -> bool:
    """Whether the process exists and is no zombie that waits for its new parent."""
    try:
        return stat_file.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
