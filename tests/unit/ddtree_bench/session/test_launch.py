"""What a launch leaves behind, and what its notes say of it."""

from pathlib import Path

import pytest
from fakes import bench

from ddtree_bench.findings import FindingCode
from ddtree_bench.server.process import Command
from ddtree_bench.session import launch
from ddtree_bench.session.launch import LaunchNotes
from ddtree_bench.status import Status

START = Command(("server",), {"CUDA_VISIBLE_DEVICES": "0"})
RECORDED = Path(__file__).parents[3] / "fixtures/sglang-0.5.17-h200"


def notes(folder: Path, log: Path | None = None) -> LaunchNotes:
    """Notes of a launch whose log is this one."""
    return LaunchNotes(bench(folder), 1, log or folder / "none.log", {})


@pytest.mark.parametrize(
    ("readings", "codes"),
    [
        ([900, 500, 100], []),
        ([None], []),
        ([900] * 99, [FindingCode.GPU_MEMORY_HELD]),
    ],
)
def test_gpu_memory_is_given_back_or_that_is_found(tmp_path, monkeypatch, readings, codes):
    """Waits until what was used before is used again; what is still held is said."""
    left = iter(readings)
    monkeypatch.setattr(launch, "gpu_memory_used_mib", lambda env: next(left))
    monkeypatch.setattr(launch, "_GPU_POLL_S", 0.0)
    monkeypatch.setattr(launch, "_GPU_WAIT_S", 0.0 if codes else 9.0)
    about = notes(tmp_path)
    launch._wait_for_gpu(about, START, allowed_mib=200)
    assert [finding.code for finding in about.findings] == codes


def test_a_server_that_never_started_has_no_start(tmp_path):
    """Without a command there is no log to be read."""
    record = notes(tmp_path).record(Status.DIED_AT_START, "why")
    assert record.startup is None
    assert record.findings == ()


def test_what_the_log_says_from_start_to_end_is_kept(tmp_path):
    """Of the recorded launch: the server overrode its limit of running requests, for one."""
    about = notes(tmp_path, RECORDED / "dflash.log")
    about.argv = START.argv
    record = about.record(Status.OK)
    assert record.startup is not None
    assert record.startup.verify_width == 16
    assert all(finding.count >= 1 and finding.detail for finding in record.findings)
    assert len({finding.code for finding in record.findings}) == len(record.findings)


def test_a_server_without_graphs_decodes_eagerly_as_asked(tmp_path):
    """`disable_cuda_graph` in its identity: eager steps are no finding."""
    log = tmp_path / "eager.log"
    eager = "[2026-11-29 20:00:02] Decode batch, #running-req: 1, cuda graph: False\n"
    log.write_text(eager, encoding="utf-8")
    about = notes(tmp_path / "bench", log)
    about.argv = START.argv
    codes = [finding.code for finding in about.record(Status.OK).findings]
    assert codes == [FindingCode.EAGER_DECODE]
    about.identity = {"disable_cuda_graph": True}
    assert about.record(Status.OK).findings == ()
