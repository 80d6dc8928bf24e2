"""The whole DAG with a fake engine: what runs, what runs again, what survives failures."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest
from pypdf import PdfReader

from .conftest import REPOSITORY, chain, server, tree

pytestmark = pytest.mark.dag

DOWNSTREAM = ["aggregate", "charts", "report"]
# a known number of requests before the measured ones: the proof of readiness and two
STEADY = {"warmup": {"min_requests": 2, "max_requests": 2}}


def text_of(pdf: Path) -> str:
    """The report's words, white space folded."""
    return " ".join(" ".join(page.extract_text() for page in PdfReader(pdf).pages).split())


def test_one_command_ends_with_the_report_and_the_next_does_nothing(done):
    """A run measures everything, compiles the PDF, and is then up to date."""
    assert len(done.requests()) == 3 * 2 * 2 * 3  # servers × launches × workloads × prompts
    assert all(request["status"] == "ok" for request in done.requests())
    assert "tree" in text_of(done.pdf)
    assert "Nothing to be done" in done.run()


def test_rounds_are_mirrored(done):
    """Launches follow the schedule: ar chain tree, tree chain ar."""
    launches = [(name, number) for number in (1, 2) for name in ("ar", "chain", "tree")]
    started = sorted(launches, key=lambda key: done.launch(*key)["started_unix_s"])
    assert [name for name, _ in started] == ["ar", "chain", "tree", "tree", "chain", "ar"]


def test_replies_are_recorded_once_before_the_first_round(project):
    """What conversations go on with comes first; a change of the analysis does not ask again."""
    talk = '{"id": "talk", "turns": ["one?", "two?"]}\n'
    (project.folder / "prompts.jsonl").write_text(talk, encoding="utf-8")
    del project.config["servers"]["tree"], project.config["workloads"]["longform"]
    project.config |= {"protocol": {"launches": 1, **STEADY}, "analysis": {"baseline": "ar"}}
    project.run("--until", "session")
    recorded = (project.folder / "results/demo/replies.jsonl").stat().st_mtime
    assert project.launch("ar")["started_unix_s"] > recorded
    codes = {found["code"] for found in project.launch("chain")["findings"]}
    assert not codes & {"own_history", "foreign_history"}
    project.config["analysis"]["margin"] = 0.1
    assert not {"replies", "session chain-1"} & set(project.planned())
    project.config["workloads"]["short"]["history"] = "own"
    assert {"session ar-1", "session chain-1"} <= set(project.planned())


@pytest.mark.heavy
def test_servers_never_run_side_by_side(project):
    """The gpu resource serialises sessions whatever --cores says."""
    project.run("--cores", "8")
    records = [project.launch(name, n) for name in ("ar", "chain", "tree") for n in (1, 2)]
    spans = sorted((r["started_unix_s"], r["ended_unix_s"]) for r in records)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_the_same_results_give_the_same_pdf(done):
    """Compiling again from the same measurements gives the same bytes."""
    first = hashlib.sha256(done.pdf.read_bytes()).hexdigest()
    done.pdf.unlink()
    done.run("--forcerun", "aggregate")
    assert hashlib.sha256(done.pdf.read_bytes()).hexdigest() == first


def test_make_clean_leaves_the_measurements(done):
    """Tables, charts and report are made again, nothing is measured again."""
    makefile = REPOSITORY / "Makefile"
    subprocess.run(["make", "--silent", "--file", makefile, "clean"], cwd=done.folder, check=True)
    assert not done.pdf.exists()
    assert done.planned() == DOWNSTREAM


def test_a_changed_budget_measures_its_server_only(done):
    """Another budget runs that server's sessions and what is made from them."""
    done.config["servers"]["tree"]["budget"] = 7
    sessions = [f"{rule} tree-{n}" for rule in ("session", "session_spec") for n in (1, 2)]
    assert done.planned() == sorted([*sessions, *DOWNSTREAM, "resolved_config"])
    before = done.launch("ar")
    done.run()
    assert done.launch("ar") == before
    assert done.launch("tree")["identity"]["speculative_ddtree_budget"] == 7


def test_a_new_workload_measures_only_its_cells(done):
    """Sessions come back for the new cells; what was measured stays as it was."""
    before = done.requests()
    done.config["workloads"]["more"] = {**done.config["workloads"]["short"], "max_new_tokens": 8}
    done.run()
    after = done.requests()
    assert [request for request in after if request["cell"]["workload"] != "more"] == before
    assert sum(request["cell"]["workload"] == "more" for request in after) == 3 * 2 * 3


def test_an_edited_chart_draws_and_compiles_only(done):
    """The code of the charts is an input of the charts, not of the measurement."""
    source = done.folder / "src/ddtree_bench/charts/figures.py"
    source.write_text(source.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    assert done.planned() == ["charts", "report"]


def test_an_edited_client_measures_nothing_again(done):
    """Code of the measurement is versioned by the protocol number, not by its bytes."""
    source = done.folder / "src/ddtree_bench/session/run.py"
    source.write_text(source.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    assert done.planned() == []


def test_a_new_margin_measures_nothing_again(done):
    """The analysis can change after the measurement."""
    done.config["analysis"] = {"margin": 0.05}
    assert done.planned() == sorted([*DOWNSTREAM, "resolved_config"])


@pytest.mark.heavy
def test_a_failed_run_does_not_leave_a_stale_pdf(done):
    """A rule that failed after a change is not taken for up to date by the next run."""
    broken = done.folder / "src/ddtree_bench/charts/figures.py"
    good = broken.read_text(encoding="utf-8")
    stale = done.pdf.read_bytes()
    done.config["servers"]["tree"]["budget"] = 7
    broken.write_text(good + "\nraise RuntimeError\n", encoding="utf-8")
    done.run(code=1)
    broken.write_text(good, encoding="utf-8")
    done.run()
    assert done.pdf.read_bytes() != stale
    assert "Nothing to be done" in done.run()


@pytest.mark.heavy
def test_a_server_that_fails_is_a_result(project):
    """The others are measured, and the report says how each failed."""
    project.config["servers"] |= {
        "dies": chain("die@7+"),
        "hangs": chain("hang@7+"),
        "babbles": tree("garbage@7+"),
    }
    project.config["protocol"] = {"launches": 1, "attempts": 1, "request_timeout_s": 8, **STEADY}
    project.run()
    statuses = {name: project.launch(name)["status"] for name in project.config["servers"]}
    assert statuses["ar"] == statuses["chain"] == statuses["tree"] == "ok"
    found = {
        request["status"]
        for request in project.requests()
        if request["cell"]["server"] in ("dies", "hangs", "babbles")
    } - {"ok"}
    assert found == {"died_in_request", "hung", "malformed"}
    assert "server died during a request" in text_of(project.pdf)


KILLED = """\
[2026-11-29 20:00:00] Load weight begin. avail mem=9.00 GB
[2026-11-29 20:00:01] Load weight end. elapsed=0.33 s, type=TinyForCausalLM, mem usage=0.27 GB.
[2026-11-29 20:00:01] Capture target verify CUDA graph begin. num_tokens_per_req=64, bs=[1, 2]
[2026-11-29 20:00:02] Scheduler hit an exception: Traceback (most recent call last):
  File "scheduler.py", line 7, in capture
    self.capture()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.

[2026-11-29 20:00:02] Received sigquit from a child process. It usually means the child failed.
"""


def test_one_budget_kills_its_server_and_the_others_are_measured(project):
    """What this project began with: one wide tree is too much, and all others have numbers.

    The report names the budget's end by exception and phase, and has speeds for the rest.
    """
    log = project.folder / "killed.log"
    log.write_text(KILLED, encoding="utf-8")
    project.config["servers"] |= {
        "b31": tree(budget=31),
        "b63": tree(budget=63, args=["--print-file", str(log), "--die-at-start", "1"]),
        "b7": tree(budget=7),
    }
    project.config["protocol"] = {"launches": 1, "attempts": 1}
    project.run()
    statuses = {name: project.launch(name)["status"] for name in project.config["servers"]}
    assert statuses.pop("b63") == "out_of_memory"
    assert set(statuses.values()) == {"ok"}
    assert (
        "CUDA out of memory. Tried to allocate 2.00 GiB. during capture target verify"
        in (project.launch("b63")["detail"])
    )
    measured = {r["cell"]["server"] for r in project.requests() if r["status"] == "ok"}
    assert measured == {"ar", "chain", "tree", "b31", "b7"}
    said = text_of(project.pdf)
    assert "server ran out of memory" in said
    assert "during capture target verify" in said
    assert "not measured, no GPU" in said


@pytest.mark.heavy
def test_a_run_in_which_everything_fails_still_ends_with_a_report(project):
    """An empty result set compiles, and says so."""
    project.config["servers"] = {"ar": server("die@1+"), "tree": tree("die@1+")}
    project.config["protocol"] = {"launches": 1, "attempts": 1}
    project.run()
    assert "server died" in text_of(project.pdf)


def test_a_failed_launch_is_tried_again_by_snakemake(project):
    """A fault that goes away costs an attempt, not the measurement, and stays told."""
    once = str(project.folder / "failed-once")
    project.config["servers"]["tree"] = tree(args=["--fault", "die@3", "--fault-once", once])
    project.config["protocol"]["launches"] = 1
    project.run()
    assert project.launch("tree")["status"] == "ok"
    assert project.launch("tree")["attempt"] == 2
    failures = pd.read_csv(project.folder / "results/demo/tables/failures.csv")
    assert set(failures["attempt"]) == {1}
    assert not failures["final"].any()
    assert list(failures["level"]) == ["launch"]  # it died in its warm-up, before any cell
    assert "server died" in text_of(project.pdf)


@pytest.mark.heavy
def test_a_recorded_failure_is_tried_again_on_request(project):
    """`make retry` forces the failed sessions; measured cells are not measured again."""
    once = project.folder / "failed-once"
    project.config["servers"]["tree"] = tree(
        args=["--fault", "http500@9+", "--fault-once", str(once)]
    )
    project.config["protocol"] = {"launches": 1, "attempts": 1, **STEADY}
    project.run()
    # the ninth request is the last of the second workload: the first one is whole
    before = [r for r in project.requests() if r["cell"]["workload"] == "short"]
    failed = subprocess.run(
        [*project.command()[:1], "-m", "ddtree_bench.rounds.retry", "config/config.yaml"],
        cwd=project.folder,
        env={**project.environment, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert failed == ["results/demo/sessions/tree/launch-1/launch.json"]
    project.run("--forcerun", *failed)
    after = project.requests()
    assert all(request["status"] == "ok" for request in after)
    assert [
        r for r in after if r["cell"]["workload"] == "short" and r["cell"]["server"] == "tree"
    ] == [r for r in before if r["cell"]["server"] == "tree"]


def test_a_wrong_configuration_starts_nothing(project):
    """A typing error ends the run at once with file, line and the nearest key."""
    project.config["servers"]["tree"]["buget"] = 3
    output = project.run(code=1)
    assert 'did you mean "budget"' in output
    assert not (project.folder / "results").exists()


def processes_of(folder: Path) -> Iterator[psutil.Process]:
    """Processes that work in or were started from a folder."""
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder):
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


@pytest.mark.heavy
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_an_interrupted_run_leaves_nothing_and_resumes(project, how):
    """After Ctrl-C or a killed Snakemake no process stays, and the next run goes on."""
    project.config["servers"]["chain"] = chain("hang@6")
    project.config["protocol"]["request_timeout_s"] = 120
    project.write_config()
    snakemake = subprocess.Popen(
        project.command(),
        cwd=project.folder,
        env=project.environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # a shell's background jobs, which these tests may be one of, pass on that they ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_for(lambda: list(project.folder.glob("results/demo/sessions/chain/*/*.server.log")))
    if how is signal.SIGINT:
        os.killpg(snakemake.pid, how)
    else:
        snakemake.kill()
    snakemake.wait(180)
    wait_for(lambda: not list(processes_of(project.folder)))
    project.config["servers"]["chain"] = chain()
    project.run("--unlock")
    project.run("--rerun-incomplete")
    assert all(request["status"] == "ok" for request in project.requests())


def wait_for(condition, timeout_s: float = 180.0) -> None:
    """Poll until a condition holds; fail after a while."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.2)


@pytest.mark.heavy
def test_extras_are_measured_and_told_apart(project):
    """An open loop, answers of a fixed length, and rounds that widths make needless.

    The plain server's differences from itself are judged by its log probabilities.
    """
    extra = project.config["workloads"]["short"]
    project.config["servers"] = {"ar": server(), "chain": chain()}
    project.config["workloads"] |= {
        "arriving": {**extra, "arrivals_per_s": [20.0]},
        "fixed": {**extra, "ignore_eos": True},
    }
    project.config["protocol"]["adaptive"] = {"max_launches": 4, "width": 1e6}
    project.run()
    assert [project.launch("chain", n)["status"] for n in (1, 2, 3, 4)] == [
        *("ok", "ok", "ok"),
        "not_needed",
    ]
    assert project.launch("ar", 1)["logprob_requests"] > 0
    assert project.launch("ar", 2)["logprob_requests"] == 0
    said = text_of(project.pdf)
    assert "Open loop" in said
    assert "12, always" in said
    assert "3 were needed" in said
    assert "Nothing to be done" in project.run()
