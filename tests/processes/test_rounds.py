"""A whole run without Snakemake, on the fake engine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from fakes import FAKE_ENGINE, FIRST_MEASURED, write_model, write_prompts

from ddtree_bench.rounds.__main__ import main

pytestmark = pytest.mark.process


class Run:
    """A configuration of two servers and its results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        server = {"model": str(write_model(folder / "model")), "python": FAKE_ENGINE}
        prompts = str(write_prompts(folder / "prompts.jsonl", count=1))
        self.config: dict[str, Any] = {
            "run": "fake",
            "servers": {"a": {**server}, "b": {**server}},
            "workloads": {"short": {"class": "short", "prompts": prompts, "max_new_tokens": 8}},
            "protocol": {
                "launches": 2,
                "attempts": 1,
                "warmup": {"min_requests": 2, "max_requests": 2},
            },
            "analysis": {"baseline": "a"},
        }

    def arguments(self, *more: str) -> list[str]:
        """Arguments of the command line; writes the configuration."""
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(self.config), encoding="utf-8")
        return [str(path), "--results", str(self.folder / "results"), *more]

    def session(self, server: str, launch: int) -> Path:
        """Where a session has its files."""
        return self.folder / f"results/fake/sessions/{server}/launch-{launch}"

    def launches(self) -> list[tuple[str, int, str]]:
        """Server, launch and status of what was launched, in that order."""
        paths = self.folder.glob("results/fake/sessions/*/*/launch.json")
        records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        records.sort(key=lambda record: record["started_unix_s"])
        return [(each["server"], each["launch"], each["status"]) for each in records]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    # main() installs handlers of signals in this process
    handlers = {number: signal.getsignal(number) for number in (1, 2, 15)}
    yield Run(tmp_path)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_all_sessions_run_in_mirrored_rounds_and_once(fake, capfd):
    """A b, b a; the second call finds everything finished and launches nothing."""
    assert main(fake.arguments()) == 0
    first = fake.launches()
    assert first == [("a", 1, "ok"), ("b", 1, "ok"), ("b", 2, "ok"), ("a", 2, "ok")]
    capfd.readouterr()
    assert main(fake.arguments()) == 0
    assert capfd.readouterr().err == "4 sessions, 4 finished before\n"


def test_a_fourth_round_only_where_intervals_are_wide(fake):
    """Two rounds always, a third without looking; then the first two decide for both servers."""
    write_prompts(fake.folder / "prompts.jsonl", count=3)
    fake.config["protocol"]["adaptive"] = {"max_launches": 4, "width": 1e6}
    assert main(fake.arguments()) == 0
    statuses = {(name, number): status for name, number, status in fake.launches()}
    assert [statuses["a", n] for n in (1, 2, 3, 4)] == ["ok", "ok", "ok", "not_needed"]
    assert statuses["b", 4] == "not_needed"
    told = json.loads((fake.session("b", 4) / "launch.json").read_text(encoding="utf-8"))
    assert "asked for" in told["detail"]
    assert (fake.session("b", 4) / "cells.jsonl").read_text(encoding="utf-8") == ""


def second_prompts(fake):
    """Hashes of the second turns' rendered prompts, by server and launch."""
    found = {}
    for path in fake.folder.glob("results/fake/sessions/*/*/cells.jsonl"):
        lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        second = {line["prompt_sha256"] for line in lines if line.get("turn") == 1}
        found[path.parts[-3], path.parts[-2]] = second
    return found


def talking(fake, **workload):
    """Servers that answer differently, in a conversation."""
    prompts = fake.folder / "prompts.jsonl"
    prompts.write_text('{"id": "talk", "turns": ["one?", "two?"]}', encoding="utf-8")
    fake.config["servers"]["b"]["args"] = ["--tokens", "5"]
    fake.config["workloads"]["short"] |= {"class": "multiturn", **workload}


def test_all_servers_go_on_with_the_baselines_replies(fake, capfd):
    """The second turns' prompts are one and the same; recorded once, before the first round."""
    talking(fake)
    fake.config["protocol"]["launches"] = 1
    assert main(fake.arguments()) == 0
    assert "1 of 1 conversations have recorded replies" in capfd.readouterr().err
    fake.config["protocol"]["launches"] = 2
    assert main(fake.arguments()) == 0
    assert "replies" not in capfd.readouterr().err
    found = second_prompts(fake)
    assert len(found) == 4
    assert len(set.union(*found.values())) == 1


def test_with_their_own_histories_servers_are_asked_differently(fake):
    """The second mode: what a server said is what it goes on with."""
    talking(fake, history="own")
    fake.config["protocol"]["launches"] = 1
    assert main(fake.arguments()) == 0
    found = second_prompts(fake)
    assert found["a", "launch-1"] != found["b", "launch-1"]


def test_a_baseline_that_gives_no_replies_stops_nobody(fake):
    """The other server goes on with its own, and its launch says so."""
    talking(fake)
    fake.config["servers"]["a"]["args"] = ["--fault", f"die@{FIRST_MEASURED}"]
    fake.config["protocol"]["launches"] = 1
    assert main(fake.arguments()) == 0
    launch = json.loads((fake.session("b", 1) / "launch.json").read_text(encoding="utf-8"))
    assert "own_history" in [found["code"] for found in launch["findings"]]
    assert launch["status"] == "ok"


def test_a_failing_server_does_not_stop_the_others(fake):
    """Its failure is recorded, the other server is measured."""
    fake.config["servers"]["a"]["args"] = ["--fault", f"die@{FIRST_MEASURED}"]
    assert main(fake.arguments()) == 0
    assert [(name, status == "ok") for name, _, status in fake.launches()] == [
        ("a", False),
        ("b", True),
        ("b", True),
        ("a", False),
    ]


def test_a_server_that_cannot_start_here_does_not_stop_the_others(fake, capfd):
    """What this machine lacks is said, and the exit code says that results are missing."""
    fake.config["servers"]["a"]["python"] = "/there/is/none"
    assert main(fake.arguments()) == 1
    assert [name for name, _, _ in fake.launches()] == ["b", "b"]
    assert "a launch 2: no result" in capfd.readouterr().err


def test_only_some_servers(fake, capfd):
    """`--only` measures these; an unknown name is a fault with a hint."""
    fake.config["protocol"]["launches"] = 1
    assert main(fake.arguments("--only", "b")) == 0
    assert [name for name, _, _ in fake.launches()] == ["b"]
    fake.config["servers"]["dflash"] = fake.config["servers"]["b"]
    assert main(fake.arguments("--only", "dflahs")) == 2
    assert 'did you mean "dflash"' in capfd.readouterr().err


def test_nothing_is_started_that_would_end_too_late(fake, capfd):
    """With 100 s to go, sessions of 1000 s wait; their specs are there for others to run."""
    assert main(fake.arguments("--deadline-s", "100", "--session-s", "1000")) == 1
    assert fake.launches() == []
    assert (fake.session("b", 2) / "spec.json").exists()
    assert re.search(r"about 1000 s, \d+ s left", capfd.readouterr().err)
    # an earlier launch tells better: once measured, a server's seconds are known
    fake.config["protocol"]["launches"] = 1
    assert main(fake.arguments("--only", "a")) == 0
    fake.config["protocol"]["launches"] = 2
    assert main(fake.arguments("--only", "a", "--deadline-s", "100", "--session-s", "1000")) == 0


def test_a_changed_server_is_measured_again_and_no_other(fake):
    """Old outputs beside a new spec are not taken for its results."""
    fake.config["protocol"]["launches"] = 1
    assert main(fake.arguments()) == 0
    before = (fake.session("a", 1) / "launch.json").read_bytes()
    fake.config["servers"]["b"]["env"] = {"SOMETHING": "else"}
    assert main(fake.arguments()) == 0
    assert (fake.session("a", 1) / "launch.json").read_bytes() == before
    launch = json.loads((fake.session("b", 1) / "launch.json").read_text(encoding="utf-8"))
    assert launch["environment"]["SOMETHING"] == "else"


def test_a_signal_ends_the_session_and_its_server(fake):
    """After SIGTERM no process of the run is left, and no further session starts."""
    fake.config["servers"]["a"]["args"] = ["--fault", f"hang@{FIRST_MEASURED}"]
    command = [sys.executable, "-m", "ddtree_bench.rounds", *fake.arguments()]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=fake.folder) as process:
        family: list[psutil.Process] = []
        deadline_s = time.monotonic() + 60
        while len(family) < 2:  # the session and its server
            assert time.monotonic() < deadline_s
            family = psutil.Process(process.pid).children(recursive=True)
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    assert fake.launches() == []


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call sets for its servers is gone afterwards."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "unset")


@pytest.mark.usefixtures("own_environment")
def test_the_servers_of_a_call_see_its_gpus(tmp_path: Path) -> None:
    """`--gpus 3`: every launch records it, counted as nvidia-smi counts."""
    run = Run(tmp_path)
    assert main(run.arguments("--gpus", "3", "--only", "a")) == 0
    for launch in (1, 2):
        record = json.loads((run.session("a", launch) / "launch.json").read_text("utf-8"))
        assert record["environment"]["CUDA_VISIBLE_DEVICES"] == "3"
        assert record["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.usefixtures("own_environment")
def test_a_server_that_names_its_gpus_refuses_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The configuration would win silently."""
    run = Run(tmp_path)
    run.config["servers"]["b"]["env"] = {"CUDA_VISIBLE_DEVICES": "0"}
    assert main(run.arguments("--gpus", "3")) == 2
    assert "b.env.CUDA_VISIBLE_DEVICES\n  it names the GPUs, and so does" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
