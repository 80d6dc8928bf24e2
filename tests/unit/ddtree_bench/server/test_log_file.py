"""A log that grows, and what a launch keeps of it."""

from pathlib import Path

from ddtree_bench.findings import FindingCode
from ddtree_bench.server.log import LogFinding, parse_log
from ddtree_bench.server.log_file import LogFile, counted, failure_in, startup_of
from ddtree_bench.status import Status

RECORDED = Path(__file__).parents[3] / "fixtures/sglang-0.5.17-h200"
READY = b"[2026-11-29 20:00:01] The server is fired up and ready to roll!\n"
EAGER = b"[2026-11-29 20:00:02] Decode batch, #running-req: 1, cuda graph: False\n"


def recorded(name: str):
    """A recorded log, parsed."""
    with (RECORDED / f"{name}.log").open(newline="\n") as lines:
        return parse_log(lines)


def test_reading_goes_on_where_it_ended(tmp_path):
    """Cut at every byte, a log that is read twice tells what it tells when read once."""
    path, whole = tmp_path / "log", READY + EAGER
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        log = LogFile(path)
        log.read()
        path.write_bytes(whole)
        assert [finding.line_number for finding in log.read().findings] == [2]


def test_no_file_yet_tells_nothing(tmp_path):
    """A server that could not be started leaves no log."""
    assert LogFile(tmp_path / "none").read().findings == ()
    assert failure_in(tmp_path / "none") is None


def test_the_exception_of_a_recorded_crash():
    """The whole log is read, so the start-up phase that it happened in is known."""
    failure = failure_in(RECORDED / "crash-fp32-rmsnorm.log")
    assert failure is not None
    assert failure.status is Status.DIED_AT_START
    assert failure.fatal
    assert str(failure).startswith("RuntimeError: rmsnorm(at::Tensor&")
    assert "failed to dispatch data type Float" in str(failure)
    assert " during capture target prefill at " in str(failure)


def test_startup_of_a_recorded_launch():
    """Phases with seconds, the target's KV pool, the captured width: SGLang's own words."""
    startup = startup_of(recorded("dflash"))
    assert startup is not None
    assert [(phase.name, phase.elapsed_s) for phase in startup.phases][:2] == [
        ("load LlamaForCausalLM", 0.33),
        ("load DFlashDraftModel", 0.03),
    ]
    assert (startup.kv_pool_tokens, startup.kv_pool_gib) == (1459234, 15.66 + 15.66)
    assert (startup.max_running_requests, startup.free_gib) == (32, 103.10)
    assert startup.verify_width == 16
    assert startup.parts_s["tokenizer_e2e"] == 86.09


def test_another_engines_log_tells_nothing_of_the_start():
    """Nothing is not a start of no phases."""
    assert startup_of(parse_log(["loading", "ready"])) is None


def test_findings_are_counted_by_code():
    """One record a code with its first line; what was asked for is none."""
    found = [
        LogFinding(FindingCode.EAGER_DECODE, 1.0, 7, "first"),
        LogFinding(FindingCode.EAGER_DECODE, 2.0, 9, "second"),
        LogFinding(FindingCode.RETRACTED, 3.0, 11, "third"),
    ]
    eager, retracted = counted(found)
    assert (eager.code, eager.count, eager.detail) == ("eager_decode", 2, "log line 7: first")
    assert (retracted.code, retracted.count) == ("retracted", 1)
    assert counted(found, {FindingCode.EAGER_DECODE}) == (retracted,)
