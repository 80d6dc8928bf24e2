"""Whole sessions against the fake server: every way in which they can end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from fakes import FIRST_MEASURED, bench

from ddtree_bench.errors import MachineError
from ddtree_bench.findings import FindingCode
from ddtree_bench.records import Launch
from ddtree_bench.server.process import free_port
from ddtree_bench.session.__main__ import main
from ddtree_bench.session.launch import facts_of_attached
from ddtree_bench.session.logprobs import read_logprobs
from ddtree_bench.session.run import FROM_STORE, Session, run
from ddtree_bench.session.store import MeasuredCell, read_cells
from ddtree_bench.status import Status

pytestmark = pytest.mark.process

LAST = "protocol: {attempts: 1}"
"""The first attempt is the last, so that failures are written."""


def cells_of(session: Session) -> dict[str, MeasuredCell]:
    """What was written, by workload."""
    return {each.cell.cell.workload: each for each in read_cells(session.folder / "cells.jsonl")}


def statuses(session: Session) -> dict[str, Status]:
    """Status by workload."""
    return {name: each.cell.status for name, each in cells_of(session).items()}


def launch_of(session: Session) -> Launch:
    """The launch that was written."""
    return Launch.model_validate_json((session.folder / "launch.json").read_bytes())


def failing(folder: Path, *args: str, text: str = LAST, **server) -> Session:
    """A session on a fake server with these arguments."""
    spec = bench(folder / "bench", text, args=args, **server)
    return Session(spec, folder / "results")


def fault(kind: str, number: int = FIRST_MEASURED, more: str = "") -> tuple[str, str]:
    """Arguments for a fault in one measured request."""
    return ("--fault", f"{kind}@{number}{more}")


def test_a_good_session_is_whole(tmp_path):
    """Two workloads of two prompts: two cells, four requests, all the facts of the launch."""
    session = failing(tmp_path, algorithm="DDTREE", drafter=str(tmp_path), block_size=8, budget=7)
    assert run(session) == 0
    cells = cells_of(session)
    assert statuses(session) == {"short": Status.OK, "longform": Status.OK}
    assert [len(cell.requests) for cell in cells.values()] == [2, 2]
    assert all(r.tree is not None and r.tree.verify_width == 8 for r in cells["short"].requests)
    launch = launch_of(session)
    assert launch.status is Status.OK
    assert launch.warmup_requests == 2
    assert launch.identity["speculative_num_draft_tokens"] == 8
    assert launch.ready_after_s is not None
    assert launch.machine["cpu_model"]
    assert launch.machine["prompts"] == session.spec.prompts_sha256
    assert launch.argv[1:3] == ("-m", "ddtree.server")
    assert "OMP_NUM_THREADS" not in launch.environment


def test_the_second_time_nothing_is_launched(tmp_path):
    """All cells come from the store, and the launch that measured them is still known."""
    session = failing(tmp_path)
    assert run(session) == 0
    first = (session.folder / "cells.jsonl").read_text(encoding="utf-8")
    launch = launch_of(session)
    for name in ("launch.json", "cells.jsonl"):  # as Snakemake does before it runs a job again
        (session.folder / name).unlink()
    assert run(session) == 0
    assert (session.folder / "cells.jsonl").read_text(encoding="utf-8") == first
    assert launch_of(session) == launch


def test_cells_of_another_folder_need_no_launch(tmp_path):
    """With a merged store the launch is unknown, and that is said."""
    session = failing(tmp_path)
    run(session)
    elsewhere = Session(session.spec, tmp_path / "elsewhere")
    assert elsewhere.store.merge(session.store.folder).copied == 2
    assert run(elsewhere) == 0
    assert launch_of(elsewhere).detail == FROM_STORE
    assert launch_of(elsewhere).argv == ()


def test_fresh_measures_stored_cells_again(tmp_path):
    """`--fresh` believes no store."""
    session = failing(tmp_path)
    run(session)
    before = cells_of(session)["short"].cell.started_unix_s
    run(Session(session.spec, session.results, fresh=True))
    assert cells_of(session)["short"].cell.started_unix_s > before


def test_a_new_workload_measures_only_itself(tmp_path):
    """Finished cells stay as they are."""
    session = failing(tmp_path)
    run(session)
    before = cells_of(session)
    workloads = dict(session.spec.workloads)
    workloads["extra"] = workloads["short"]
    hashes = {**session.spec.prompts_sha256, "extra": session.spec.prompts_sha256["short"]}
    spec = session.spec.model_copy(update={"workloads": workloads, "prompts_sha256": hashes})
    assert run(Session(spec, session.results)) == 0
    after = cells_of(session)
    assert list(after) == ["short", "longform", "extra"]
    assert after["short"] == before["short"]


@pytest.mark.parametrize(
    ("args", "status", "detail"),
    [
        (("--die-at-start", "3"), Status.DIED_AT_START, "RuntimeError: fake weights are missing"),
        (fault("die", 1), Status.DIED_AT_START, "exit code 7"),
        (fault("die", 2), Status.DIED_IN_WARMUP, "RuntimeError: fake kernel failed"),
        (fault("crash", 2), Status.DIED_IN_WARMUP, "torch.AcceleratorError: CUDA error: an illeg"),
        (fault("oom", 3), Status.OUT_OF_MEMORY, "CUDA out of memory"),
        (fault("http500", 2), Status.HTTP_ERROR, "in the warm-up"),
        (fault("garbage", 1), Status.NOT_READY, "its first answer failed"),
        (("--lie", "model_path=null"), Status.WRONG_SERVER, "model_path: expected"),
    ],
)
def test_a_launch_that_fails_is_a_row(tmp_path, args, status, detail):
    """Launch and cells are written with a typed reason, the log and its tail."""
    session = failing(tmp_path, *args)
    assert run(session) == 0
    launch = launch_of(session)
    assert launch.status is status
    assert detail in launch.detail
    assert statuses(session) == {"short": Status.NOT_RUN, "longform": Status.NOT_RUN}
    assert detail in cells_of(session)["short"].cell.detail
    assert launch.log_path == str(session.folder / "attempt-1.server.log")
    assert list(session.store.folder.glob("*")) == []


def test_a_server_that_never_gets_ready(tmp_path):
    """The deadline ends the wait; what health said is told."""
    session = failing(tmp_path, "--never-ready", startup_timeout_s=1.5)
    run(session)
    assert launch_of(session).status is Status.NOT_READY
    assert launch_of(session).detail.startswith("deadline passed; ")


@pytest.mark.parametrize(
    ("kind", "status", "longform"),
    [
        ("die", Status.DIED_IN_REQUEST, Status.NOT_RUN),
        ("crash", Status.DIED_IN_REQUEST, Status.NOT_RUN),
        ("oom", Status.OUT_OF_MEMORY, Status.NOT_RUN),
        ("hang", Status.HUNG, Status.NOT_RUN),
        ("truncate", Status.UNREACHABLE, Status.OK),
        ("http500", Status.HTTP_ERROR, Status.OK),
        ("stream-error", Status.STREAM_ERROR, Status.OK),
        ("no-tokens", Status.NO_TOKENS, Status.OK),
        ("no-usage", Status.NO_USAGE, Status.OK),
    ],
)
def test_a_failed_request_fails_its_cell(tmp_path, kind, status, longform):
    """A live server is asked for the next cell; a lost one is not. Requests are kept."""
    text = "protocol: {attempts: 1, request_timeout_s: 3}"
    session = failing(tmp_path, *fault(kind), text=text)
    assert run(session) == 0
    cells = cells_of(session)
    assert statuses(session) == {"short": status, "longform": longform}
    assert cells["short"].requests[0].status is status
    assert launch_of(session).status is (Status.OK if longform is Status.OK else status)
    stored = [path.stem for path in session.store.folder.glob("*.jsonl")]
    assert stored == ([cells["longform"].cell.key] if longform.ok else [])


def test_counters_that_contradict_each_other_fail_the_cell(tmp_path):
    """A request may look well and not be."""
    chain = {"algorithm": "DFLASH", "drafter": str(tmp_path), "block_size": 8}
    session = failing(tmp_path, *fault("bad-counts"), **chain)
    run(session)
    assert statuses(session) == {"short": Status.BAD_COUNTS, "longform": Status.OK}


def test_a_warm_cache_fails_the_cell(tmp_path):
    """Cached tokens where cold was asked for."""
    session = failing(tmp_path, "--cached", "10")
    run(session)
    assert set(statuses(session).values()) == {Status.NOT_COLD}


def test_a_dead_server_is_told_with_its_last_error(tmp_path):
    """Exit code and the telling line of the log reach cell and launch."""
    session = failing(tmp_path, *fault("die"))
    run(session)
    said = "exit code 7; last error: RuntimeError: fake kernel failed"
    assert said in cells_of(session)["short"].cell.detail
    assert "RuntimeError: fake kernel failed" in launch_of(session).log_tail


def test_a_failure_is_tried_again_before_it_is_written(tmp_path):
    """Attempt 1 of 2 writes nothing and exits 1; attempt 2 measures only what is missing."""
    once = tmp_path / "faulty-once"
    args = (*fault("die", FIRST_MEASURED + 2), "--fault-once", str(once))
    session = failing(tmp_path, *args, text="protocol: {attempts: 2}")
    assert run(session) == 1
    assert not (session.folder / "launch.json").exists()
    assert not (session.folder / "cells.jsonl").exists()
    assert len(list(session.store.folder.glob("*.jsonl"))) == 1
    second = Session(session.spec, session.results, attempt=2)
    assert run(second) == 0
    assert set(statuses(session).values()) == {Status.OK}
    assert launch_of(session).attempt == 2
    logs = sorted(path.name for path in session.folder.glob("*.log"))
    assert logs == ["attempt-1.server.log", "attempt-2.server.log"]
    died = Status.DIED_IN_REQUEST
    assert [(each.level, each.attempt, each.status) for each in launch_of(session).earlier_failures
            ] == [("launch", 1, died), ("request", 1, died), ("cell", 1, died)]  # fmt: skip
    assert "fake kernel failed" in launch_of(session).earlier_failures[0].log_tail


def test_a_recorded_failure_stays_told_when_it_is_made_good(tmp_path):
    """The last attempt failed and was written; the session is run again, and is well."""
    once = tmp_path / "faulty-once"
    session = failing(tmp_path, *fault("http500"), "--fault-once", str(once))
    assert run(session) == 0
    assert statuses(session)["short"] is Status.HTTP_ERROR
    assert launch_of(session).earlier_failures == ()
    for _ in range(2):  # the second time all cells come from the store
        assert run(session) == 0
        assert set(statuses(session).values()) == {Status.OK}
        earlier = launch_of(session).earlier_failures
        assert [each.level for each in earlier] == ["request", "cell"]
        assert {each.status for each in earlier} == {Status.HTTP_ERROR}


def test_failures_of_another_server_are_not_told(tmp_path):
    """A changed flag makes another server; what the one before it did says nothing of it."""
    session = failing(tmp_path, "--die-at-start", "3")
    assert run(session) == 0
    server = session.spec.server.model_copy(update={"args": ()})
    mended = Session(session.spec.model_copy(update={"server": server}), session.results)
    assert run(mended) == 0
    assert launch_of(mended).status is Status.OK
    assert launch_of(mended).earlier_failures == ()


@contextmanager
def somebody_elses(
    model: str, *args: str, port: int | None = None
) -> Iterator[tuple[str, subprocess.Popen]]:
    """A fake server that no session has started: where it listens, and its process."""
    script = str(Path(__file__).parents[1] / "fake_server.py")
    port = port or free_port()
    argv = [sys.executable, script, "--port", str(port), "--model-path", model, *args]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()


def attached(owner: Session, url: str, folder: Path, **keys) -> Session:
    """A session on a server that runs already."""
    server = owner.spec.server.model_copy(update={"engine": "attach", "base_url": url, **keys})
    return Session(owner.spec.model_copy(update={"server": server}), folder)


def test_an_attached_server_is_measured_and_left_running(tmp_path):
    """Somebody else's server is used under its own name and not stopped."""
    owner = failing(tmp_path)
    with somebody_elses(owner.spec.server.model) as (url, process):
        session = attached(owner, url, tmp_path / "r")
        assert run(session) == 0
        assert process.poll() is None
    assert set(statuses(session).values()) == {Status.OK}
    assert launch_of(session).log_path is None


def test_a_restarted_server_is_served_from_the_store_only_if_it_is_the_same(tmp_path):
    """At one address: again as it was, with another page size, of another version."""
    owner, port, started = failing(tmp_path), free_port(), []
    for lies in ((), (), ("--lie", "page_size=64"), ("--lie", 'version="0.5.23"')):
        with somebody_elses(owner.spec.server.model, *lies, port=port) as (url, _):
            session = attached(owner, url, tmp_path / "r")
            while "identity" in facts_of_attached(session.spec):  # not up yet
                time.sleep(0.1)
            assert run(session) == 0
            started.append(launch_of(session).started_unix_s)
    first, again, paged, updated = started
    assert first == again < paged < updated


def test_cells_of_a_server_that_does_not_answer_are_nobodys(tmp_path):
    """Two calls in vain: what is measured once it is up is never taken for another server's."""
    session = attached(failing(tmp_path), f"http://127.0.0.1:{free_port()}", tmp_path / "r")
    one, other = (facts_of_attached(session.spec) for _ in range(2))
    assert one.keys() == other.keys() == {"identity"}
    assert one != other


def spec_file(tmp_path: Path, session: Session) -> Path:
    """The spec as the session's process reads it."""
    path = tmp_path / "spec.json"
    path.write_text(session.spec.to_json(), encoding="utf-8")
    return path


def test_edited_prompts_are_not_measured_under_the_old_hash(tmp_path, capsys):
    """Exit code 2, and the message says what to do."""
    session = failing(tmp_path)
    path = spec_file(tmp_path, session)
    Path(session.spec.workloads["short"].prompts).write_text("{}", encoding="utf-8")
    assert _main_in_process(path, session) == 2
    assert not session.results.exists()


def _command(path: Path, session: Session) -> list[str]:
    return [
        *(sys.executable, "-m", "ddtree_bench.session", "--spec", str(path)),
        *("--results", str(session.results), "--attempt", "1"),
    ]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}


def _main_in_process(path: Path, session: Session) -> int:
    return subprocess.run(
        _command(path, session), env=_environment(), timeout=60, check=False
    ).returncode


def wait_for(path: Path, words: str, process: subprocess.Popen) -> None:
    """Return when a file holds the words."""
    end_s = time.monotonic() + 60
    while not path.exists() or words not in path.read_text(encoding="utf-8", errors="replace"):
        assert process.poll() is None
        assert time.monotonic() < end_s, f"{words!r} did not come"
        time.sleep(0.02)


def servers_of(session: Session) -> list[psutil.Process]:
    """Fake servers that serve this session's model."""
    model = session.spec.server.model
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if model in (process.info["cmdline"] or [])
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_session_in_order(tmp_path, number, code):
    """The server is stopped, finished cells stay, no output is written, the code tells."""
    session = failing(tmp_path, *fault("hang", FIRST_MEASURED + 2), text="")
    path = spec_file(tmp_path, session)
    errors = tmp_path / "stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(_command(path, session), env=_environment(), stderr=stderr)
    with process:
        wait_for(errors, "[1/2]", process)
        assert servers_of(session)
        process.send_signal(number)
        process.send_signal(number)  # impatience changes nothing
        assert process.wait(30) == code
    assert servers_of(session) == []
    assert len(list(session.store.folder.glob("*.jsonl"))) == 1
    assert not (session.folder / "launch.json").exists()
    assert not (session.folder / "cells.jsonl").exists()


def test_a_session_ends_when_its_snakemake_is_killed(tmp_path):
    """SIGKILL to Snakemake leaves no server behind, though a shell stands in between."""
    session = failing(tmp_path, *fault("hang", FIRST_MEASURED), text="")
    path = spec_file(tmp_path, session)
    code = (
        "import subprocess, sys\n"
        "shell = subprocess.Popen(['bash', '-c', '\"$@\"; true', 'job', *sys.argv[2:]])\n"
        "shell.wait()\n"
    )
    # the second argument makes this parent look like Snakemake
    argv = [sys.executable, "-c", code, "snakemake", *_command(path, session)]
    with subprocess.Popen(argv, env=_environment()) as snakemake:
        log = session.folder / "attempt-1.server.log"
        wait_for(log, "fired up", snakemake)
        children = psutil.Process(snakemake.pid).children(recursive=True)
        snakemake.kill()
    gone, alive = psutil.wait_procs([*children, *servers_of(session)], timeout=30)
    assert gone
    assert not alive


def test_a_cell_says_how_it_went(tmp_path, capsys):
    """One line a cell: place, speed, time left."""
    session = failing(tmp_path, *fault("http500"))
    run(session)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert lines[0].startswith("[1/2] one/launch-1/short/c1/r1: server answered with an HTTP error")
    assert lines[1].startswith("[2/2] one/launch-1/longform/c1/r1: ")
    assert " tok/s, " in lines[1]


def test_outputs_are_json_lines_of_records(tmp_path):
    """Each cell comes before its requests."""
    session = failing(tmp_path)
    run(session)
    lines = (session.folder / "cells.jsonl").read_text(encoding="utf-8").splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["cell", "request", "request"] * 2


def test_main_is_importable():
    """The command line exists under the name that rules use."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0


def test_the_baseline_is_asked_for_log_probabilities_after_its_cells(tmp_path):
    """2 workloads of the same 2 prompts, 12 tokens each: 4 requests, 48 different places.

    What was said is first at its place, the other token 2.5 nats below.
    """
    session = failing(tmp_path)
    assert run(session) == 0
    launch = launch_of(session)
    assert launch.logprob_requests == 4
    assert launch.logprob_s is not None
    places = list(read_logprobs(session.folder / "logprobs.jsonl"))
    assert len({(place.question, place.position) for place in places}) == len(places) == 48
    assert all(place.top[0][1] - place.top[1][1] == pytest.approx(2.5) for place in places)
    (session.folder / "logprobs.jsonl").unlink()
    assert run(session) == 0  # from the stores, nothing is launched
    assert list(read_logprobs(session.folder / "logprobs.jsonl")) == places


@pytest.mark.parametrize("kind", ["http500", "garbage"])
def test_no_log_probabilities_are_no_failure(tmp_path, kind):
    """The cells are measured, an empty file is written, and the launch says what it lacks."""
    session = failing(tmp_path, *fault(kind, FIRST_MEASURED + 4, "+"))
    assert run(session) == 0
    assert set(statuses(session).values()) == {Status.OK}
    assert launch_of(session).status is Status.OK
    assert FindingCode.NO_LOGPROBS in [finding.code for finding in launch_of(session).findings]
    assert (session.folder / "logprobs.jsonl").read_bytes() == b""


RECORDED = Path(__file__).parents[1] / "fixtures/sglang-0.5.17-h200"


def sglang(folder: Path, *args: str, **server) -> Session:
    """A session on a fake SGLang 0.5.17 without a GPU."""
    return failing(folder, "--device", "cpu", *args, engine="sglang", **server)


def chain_of(folder: Path, block_size: int = 16) -> dict:
    """Keys of a DFlash chain."""
    return {"algorithm": "DFLASH", "drafter": str(folder), "block_size": block_size}


def start_of(folder: Path, name: str) -> str:
    """The recorded start of a server, up to its readiness, as a file."""
    lines = (RECORDED / f"{name}.log").read_text(encoding="utf-8").splitlines(keepends=True)
    ready = next(place for place, line in enumerate(lines) if "fired up" in line)
    path = folder / f"{name}.log"
    path.write_text("".join(lines[:ready]), encoding="utf-8")
    return str(path)


def test_a_launch_of_sglang_keeps_what_its_log_tells(tmp_path):
    """Phases, KV pool and captured width of a recorded start, and the facts beside identity."""
    args = ("--print-file", start_of(tmp_path, "dflash"))
    session = sglang(tmp_path, *args, **chain_of(tmp_path))
    assert run(session) == 0
    launch = launch_of(session)
    assert launch.startup is not None
    names = [phase.name for phase in launch.startup.phases]
    assert names[-2:] == ["capture target verify", "capture draft verify"]
    assert launch.startup.kv_pool_tokens == 1459234
    assert launch.identity["log.verify_width"] == 16
    assert launch.identity["log.capture target verify.batch_sizes"][:3] == [1, 2, 3]
    assert launch.identity["log.drafter.attention_backend"] == "triton"


def test_another_width_in_the_captured_graph_is_another_server(tmp_path):
    """Its answers say 8 as configured, the graph that it captured takes 16."""
    args = ("--print-file", start_of(tmp_path, "dflash"))
    session = sglang(tmp_path, *args, **chain_of(tmp_path, block_size=8))
    assert run(session) == 0
    assert launch_of(session).status is Status.WRONG_SERVER
    assert "expected 8, found 16" in launch_of(session).detail


def test_a_crash_while_starting_is_told_with_its_phase(tmp_path):
    """The recorded crash of 0.5.17: exception, phase and place, though its tail is all frames."""
    log = str(RECORDED / "crash-fp32-rmsnorm.log")
    session = sglang(tmp_path, "--print-file", log, "--die-at-start", "1")
    assert run(session) == 0
    launch = launch_of(session)
    assert launch.status is Status.DIED_AT_START
    assert "failed to dispatch data type Float during capture target prefill" in launch.detail
    assert launch.startup is not None
    assert launch.startup.phases[-1].elapsed_s is None


def test_an_unknown_flag_ends_the_session_with_code_2(tmp_path):
    """A configuration that SGLang does not understand is no result of a server's."""
    session = sglang(tmp_path, "--disable-cuda-graf")
    done = subprocess.run(
        _command(spec_file(tmp_path, session), session),
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "did you mean `--disable-cuda-graph`" in done.stderr
    assert not session.results.exists()


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"args": (), "env": {"CUDA_VISIBLE_DEVICES": ""}}, "there is no NVIDIA GPU"),
        ({"env": {"FAKE_SGLANG_VERSION": "0.5.11"}}, "0.5.11 is older than 0.5.12"),
        ({"python": "/not/here/python"}, "there is no interpreter"),
        ({"model": "/not/here/model"}, "there is no folder"),
        ({"algorithm": "DFLASH", "drafter": "/not/here/drafter"}, "there is no folder"),
    ],
)
def test_what_a_machine_lacks_is_found_before_anything_is_written(tmp_path, server, words):
    """Interpreter, folders, GPU, and a release that is understood."""
    session = sglang(tmp_path)
    changed = session.spec.server.model_copy(update=server)
    with pytest.raises(MachineError, match=words):
        run(Session(session.spec.model_copy(update={"server": changed}), session.results))
    assert not session.results.exists()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "Decode batch, #running-req: 1, cuda graph: False, gen throughput (token/s): 9.0",
            FindingCode.EAGER_DECODE,
        ),
        ("DeepGEMM JIT Pre-Compile session", FindingCode.COMPILING),
        ("KV cache pool is full. Retract requests.", FindingCode.RETRACTED),
    ],
)
def test_what_the_log_says_meanwhile_flags_the_cell(tmp_path, line, code):
    """The cell is marked, counted as measured, and the launch says it, too."""
    session = sglang(tmp_path, "--say", f"{line}@{FIRST_MEASURED}")
    assert run(session) == 0
    cell = cells_of(session)["short"].cell
    assert cell.status is Status.OK
    assert code in [finding.code for finding in cell.findings]
    assert code in [finding.code for finding in launch_of(session).findings]


def test_the_host_is_watched_while_a_cell_is_measured(tmp_path):
    """A cell of some seconds has samples of the CPUs; without a GPU there are none of one."""
    session = failing(tmp_path, "--step-s", "0.1")  # 12 tokens a request: 2.4 s a cell
    assert run(session) == 0
    cell = cells_of(session)["short"].cell
    assert cell.host is not None
    assert 0 <= cell.host.foreign_share.mean <= cell.host.busy_share.mean <= 1


@pytest.mark.parametrize("may_flush", [False, True])
def test_an_attached_server_is_flushed_by_leave_only(tmp_path, may_flush):
    """Without leave, cached tokens are recorded and the cells say that the cache is unknown."""
    owner = failing(tmp_path)
    flushed, cached = tmp_path / "flushed", "0" if may_flush else "10"
    args = ("--cached", cached, "--flushed", str(flushed))
    with somebody_elses(owner.spec.server.model, *args) as (url, _):
        session = attached(owner, url, tmp_path / "r", may_flush=may_flush)
        assert run(session) == 0
    assert flushed.exists() == may_flush
    cells = cells_of(session)
    assert set(statuses(session).values()) == {Status.OK}
    codes = [finding.code for finding in cells["short"].cell.findings]
    assert (FindingCode.CACHE_UNKNOWN in codes) != may_flush
    assert {r.cached_tokens for r in cells["short"].requests} == {int(cached)}


def test_the_wrong_model_on_an_attached_port(tmp_path):
    """Nothing is measured, and the server is left running."""
    owner = failing(tmp_path)
    with somebody_elses("/models/another") as (url, process):
        session = attached(owner, url, tmp_path / "r")
        assert run(session) == 0
        assert process.poll() is None
    assert launch_of(session).status is Status.WRONG_SERVER
    assert "model_path: expected" in launch_of(session).detail
    assert set(statuses(session).values()) == {Status.NOT_RUN}


@pytest.mark.parametrize(("key", "status"), [("s3cret", Status.OK), ("wr0ng", Status.NOT_READY)])
def test_an_api_key_is_sent_and_written_nowhere(tmp_path, monkeypatch, capfd, key, status):
    """Neither into results nor to the terminal, also where a refusal repeats it."""
    owner = failing(tmp_path)
    monkeypatch.setenv("MY_KEY", key)
    keys = {"api_key_env": "MY_KEY", "startup_timeout_s": 1.0}
    with somebody_elses(owner.spec.server.model, "--api-key", "s3cret") as (url, _):
        session = attached(owner, url, tmp_path / "r", **keys)
        assert run(session) == 0
    assert launch_of(session).status is status
    said = capfd.readouterr()
    files = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in (*files, said.out, said.err) if key in text]
    assert status.ok or "not authorised: Bearer [api key]" in launch_of(session).detail


def test_an_api_key_that_is_not_set_measures_nothing(tmp_path, monkeypatch):
    """The message names the variable."""
    monkeypatch.delenv("MY_KEY", raising=False)
    session = attached(
        failing(tmp_path), "http://127.0.0.1:9", tmp_path / "r", api_key_env="MY_KEY"
    )
    with pytest.raises(MachineError, match="MY_KEY is not set"):
        run(session)
    assert not session.results.exists()


def test_gpus_of_the_command_line_are_the_only_ones_seen(tmp_path, monkeypatch):
    """The server gets them, counted as nvidia-smi counts, and the launch records them."""
    session = failing(tmp_path)
    argv = [*_command(spec_file(tmp_path, session), session), "--gpus", "1"]
    done = subprocess.run(argv, env=_environment(), timeout=60, check=False)
    assert done.returncode == 0
    environment = launch_of(session).environment
    assert environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
