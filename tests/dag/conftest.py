"""A project folder of its own for each test, with the fake engine in place of real ones."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes import write_model

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = (
    "Snakefile",
    "workflow",
    "src",
    "report/template",
    "report/texmf",
    "benchmarks/power.json",
    "envs",
)
FAKE_ENGINE = REPOSITORY / "tests/fake_engine.py"


def server(*faults: str, **keys: Any) -> dict[str, Any]:
    """A server that the fake engine plays; faults as tests/fake_server.py takes them."""
    args = [part for fault in faults for part in ("--fault", fault)]
    return {"model": "models/tiny", "python": str(FAKE_ENGINE), "args": args} | keys


def chain(*faults: str, block_size: int = 16, **keys: Any) -> dict[str, Any]:
    """A DFlash server of the fake engine."""
    drafting = {"algorithm": "DFLASH", "drafter": "models/tiny", "block_size": block_size}
    return server(*faults, **drafting, **keys)


def tree(*faults: str, budget: int = 15, **keys: Any) -> dict[str, Any]:
    """A DDTree server of the fake engine."""
    drafting = {"algorithm": "DDTREE", "drafter": "models/tiny", "block_size": 16}
    return server(*faults, **drafting, budget=budget, topk_cap=8, **keys)


@dataclass
class Project:
    """A folder in which Snakemake runs."""

    folder: Path
    config: dict[str, Any] = field(default_factory=dict)

    def write_config(self) -> None:
        """Put the configuration where the workflow looks for it."""
        target = self.folder / "config/config.yaml"
        target.parent.mkdir(exist_ok=True)
        target.write_text(yaml.safe_dump(self.config, sort_keys=False), encoding="utf-8")

    def command(self, *arguments: str) -> list[str]:
        """The command that runs Snakemake here."""
        return [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]

    @property
    def environment(self) -> Mapping[str, str]:
        """`python` in the workflow's shell commands is the interpreter of the tests."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path}

    def run(self, *arguments: str, code: int = 0, timeout_s: float = 600) -> str:
        """Run Snakemake to its end, expect an exit code, return what it printed."""
        self.write_config()
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, output[-6000:]
        return output

    def planned(self) -> list[str]:
        """Jobs that Snakemake would run now, as `rule` or `rule server-launch`, sorted."""
        output = self.run("--dry-run")
        jobs = re.findall(r"^(?:local)?rule (\w+):\n((?:    .*\n)*)", output, re.MULTILINE)
        return sorted(_job_name(rule, body) for rule, body in jobs if rule != "all")

    def requests(self) -> list[dict[str, Any]]:
        """Every request line of the run's sessions."""
        lines = [
            json.loads(line)
            for path in sorted(self.folder.glob("results/*/sessions/*/*/cells.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        return [line for line in lines if line["kind"] == "request"]

    def launch(self, name: str, number: int = 1) -> dict[str, Any]:
        """The record of a launch."""
        (path,) = self.folder.glob(f"results/*/sessions/{name}/launch-{number}/launch.json")
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return record

    @property
    def pdf(self) -> Path:
        """The report."""
        return self.folder / f"report/{self.config['run']}.pdf"


def _job_name(rule: str, body: str) -> str:
    found = re.search(r"wildcards: server=(\S+), launch=(\d+)", body)
    return rule if found is None else f"{rule} {found[1]}-{found[2]}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Three servers, two workloads, two launches; prompts and model are tiny."""
    return new_project(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose run is over; tests take a copy."""
    project = new_project(tmp_path_factory.mktemp("finished"))
    project.run()
    return project


@pytest.fixture
def done(finished: Project, tmp_path: Path) -> Project:
    """A project of the test's own whose first run is over."""
    folder = tmp_path / "project"
    shutil.copytree(finished.folder, folder)
    return Project(folder, copy.deepcopy(finished.config))


def new_project(folder: Path) -> Project:
    """The workflow's files and a configuration for the fake engine."""
    for part in PARTS:
        source, target = REPOSITORY / part, folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    write_model(folder / "models/tiny")
    prompts = folder / "prompts.jsonl"
    prompts.write_text(
        "".join(json.dumps({"id": f"p{n}", "turns": [f"say {n}"]}) + "\n" for n in range(3)),
        encoding="utf-8",
    )
    workload = {"prompts": "prompts.jsonl", "max_new_tokens": 12}
    config = {
        "run": "demo",
        "servers": {"ar": server(), "chain": chain(), "tree": tree()},
        "workloads": {
            "short": {"class": "short", **workload},
            "longform": {"class": "longform", **workload},
        },
        "protocol": {"launches": 2, "request_timeout_s": 20},
    }
    return Project(folder, config)
