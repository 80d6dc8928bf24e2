"""Results of `ddtree_bench.rounds`, made where there is no Snakemake, end in the report at home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import pytest

from .conftest import Project, server

pytestmark = pytest.mark.dag

DOWNSTREAM = ["aggregate", "charts", "report", "resolved_config"]


@pytest.fixture
def brought_back(project: Project) -> Project:
    """A project that was measured by `rounds` only."""
    project.config["servers"] = {"ar": server()}
    project.write_config()
    subprocess.run(
        [sys.executable, "-m", "ddtree_bench.rounds", "config/config.yaml"],
        cwd=project.folder,
        env={**project.environment, "PYTHONPATH": "src"},
        check=True,
    )
    return project


def launched(project: Project) -> list[float]:
    """When each launch was started."""
    return [project.launch("ar", number)["started_unix_s"] for number in (1, 2)]


def test_what_was_measured_elsewhere_is_only_reported(brought_back):
    """Snakemake makes tables, figures and report, and starts no server."""
    before = launched(brought_back)
    assert brought_back.planned() == DOWNSTREAM
    brought_back.run()
    assert launched(brought_back) == before
    assert brought_back.pdf.exists()
    assert "Nothing to be done" in brought_back.run()


def test_copied_without_times_needs_touch(brought_back):
    """Where copying gave the specs later times than the results, `--touch` sets them right."""
    before = launched(brought_back)
    now_s = time.time()
    for path in brought_back.folder.glob("results/demo/sessions/*/*/*.json*"):
        late_s = 10 if path.name == "spec.json" else 0
        os.utime(path, (now_s - 20 + late_s, now_s - 20 + late_s))
    assert "session ar-1" in brought_back.planned()
    results = brought_back.folder.glob("results/demo/sessions/*/*/launch.json")
    targets = [str(path.relative_to(brought_back.folder)) for path in results]
    brought_back.run("--touch", *targets)
    assert brought_back.planned() == DOWNSTREAM
    brought_back.run()
    assert launched(brought_back) == before


def test_a_store_from_elsewhere_is_merged(brought_back):
    """On the machine that measured them, merged cells are used and no server is launched."""
    folder = brought_back.folder
    shutil.move(folder / "results/demo", folder / "elsewhere")
    merge = ("ddtree_bench.session.store", "merge", "elsewhere/cells", "results/demo/cells")
    subprocess.run(
        [sys.executable, "-m", *merge],
        cwd=folder,
        env={**brought_back.environment, "PYTHONPATH": "src"},
        check=True,
    )
    brought_back.run()
    # 2 launches × 2 workloads
    assert len(list((folder / "results/demo/cells").glob("*.jsonl"))) == 4
    assert brought_back.launch("ar")["detail"] == "all cells from the store"
    assert brought_back.launch("ar")["ready_after_s"] is None
