"""What a server's log is read as: recorded logs of 0.5.17, written lines of 0.5.23, and garbage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ddtree_bench.findings import FindingCode
from ddtree_bench.server.log import LogParser, ServerLog, parse_log
from ddtree_bench.status import Status

RECORDED = Path(__file__).parents[3] / "fixtures" / "sglang-0.5.17-h200"
AT = datetime(2026, 11, 29, 20, 0, 0, tzinfo=UTC).timestamp()


def recorded(name: str) -> ServerLog:
    """A recorded log, parsed with UTC stamps."""
    with (RECORDED / f"{name}.log").open(newline="\n") as lines:
        return parse_log(lines, UTC)


def stamped(*texts: str, second: int = 0, rank: str = "") -> Iterator[str]:
    """Lines as SGLang writes them, all in one second after 20:00:00."""
    return (f"[2026-11-29 20:00:{second:02d}{rank}] {text}" for text in texts)


def written(*lines: str) -> ServerLog:
    """The log of these lines."""
    return parse_log(lines, UTC)


READY = "[2026-11-29 20:00:01] The server is fired up and ready to roll!"
DECODE = (
    "Decode batch, #running-req: 1, #full token: 512, full token usage: 0.00, mamba num: 2, "
    "mamba usage: 0.01, accept len: 6.10, accept rate: 0.34, cuda graph: True, "
    "gen throughput (token/s): 429.69, #queue-req: 3"
)


def test_recorded_start_of_dflash() -> None:
    """Every phase of the recorded start is there, in order, with the server's own seconds."""
    log = recorded("dflash")
    assert [(phase.name, phase.elapsed_s, phase.used_gib) for phase in log.phases] == [
        ("load LlamaForCausalLM", 0.33, 0.27),
        ("load DFlashDraftModel", 0.03, 0.02),
        ("capture target prefill", 38.88, 0.67),
        ("capture target verify", 4.82, 0.18),
        ("capture draft verify", 10.33, 0.16),
    ]
    assert log.phases[3].batch_sizes[:4] == (1, 2, 3, 4)
    assert log.capacity is not None
    assert log.capacity.max_total_num_tokens == 1459234
    assert log.capacity.max_running_requests == 32
    assert log.capacity.available_gib == 103.10
    assert log.draft_runner["attention_backend"] == "triton"
    assert log.startup_s["tokenizer_e2e"] == 86.09
    assert log.startup_s["target_verify"] == 4.82
    # K and V of the target: 15.66 + 15.66 GiB; of the drafter: 1.57 + 1.57 GiB
    assert [pool.total_gib for pool in log.pools] == pytest.approx([31.32, 3.14])
    assert log.ready_unix_s == datetime(2026, 11, 29, 20, 14, 32, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(("name", "width"), [("ar", 1), ("dflash", 16)])
def test_verify_width_is_read_from_the_capture(name: str, width: int) -> None:
    """The target's graph tells how many tokens are verified; plain decoding verifies one."""
    assert recorded(name).verify_width == width


def test_recorded_batches() -> None:
    """Every decode and prefill line of the recorded logs becomes a record."""
    ar, dflash = recorded("ar"), recorded("dflash")
    text = (RECORDED / "dflash.log").read_text()
    assert len(dflash.decodes) == text.count("Decode batch")
    assert len(dflash.prefills) == text.count("Prefill batch")
    assert (dflash.decodes[0].accept_length, dflash.decodes[0].tok_per_s) == (3.65, 19.72)
    assert {batch.accept_length for batch in ar.decodes} == {None}
    assert all(batch.graph for batch in (*ar.decodes, *dflash.decodes))


def test_recorded_orderly_stop_is_no_failure() -> None:
    """After a SIGTERM the server reports crashed children; that is how it ends, not a failure."""
    for name in ("ar", "dflash"):
        log = recorded(name)
        assert log.asked_to_stop
        assert log.failure is None


def test_recorded_findings() -> None:
    """The sound recorded servers show one override and no degradation of the decode path."""
    assert recorded("ar").findings == ()
    assert [finding.code for finding in recorded("dflash").findings] == [
        FindingCode.ATTENTION_OVERRIDDEN
    ]


def test_recorded_crash() -> None:
    """The crash names its exception, its deepest frame and the phase that it broke."""
    log = recorded("crash-fp32-rmsnorm")
    failure = log.failure
    assert failure is not None
    assert failure.exception == "RuntimeError"
    assert failure.message.endswith("failed to dispatch data type Float")
    assert failure.frame == "site-packages/torch/_ops.py:865 in __call__"
    assert failure.during == "capture target prefill"
    assert failure.status is Status.DIED_AT_START
    assert failure.fatal
    assert log.ready_unix_s is None
    assert [finding.code for finding in log.findings] == [FindingCode.DEPRECATED_FLAG]


def test_format_of_0_5_23() -> None:
    """0.5.23 lists batch sizes where the capture ends and names hybrid pools in decode lines."""
    log = parse_log(
        stamped(
            "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=65, "
            "avail mem=20.00 GB",
            "Capture target verify CUDA graph end. bs=[1, 2, 4], elapsed=3.50 s, "
            "mem usage=0.50 GB, avail mem=19.50 GB.",
            "Mamba Cache is allocated. max_mamba_cache_size: 12, conv_state size: 0.50GB, "
            "ssm_state size: 1.25GB intermediate_ssm_state_cache size: 2.25GB",
            DECODE,
        ),
        UTC,
    )
    assert log.verify_width == 65
    assert log.phases[0].batch_sizes == (1, 2, 4)
    # 0.50 + 1.25 + 2.25
    assert (log.pools[0].kind, log.pools[0].size, log.pools[0].total_gib) == ("Mamba", 12, 4.0)
    batch = log.decodes[0]
    assert (batch.at_unix_s, batch.running, batch.queued) == (AT, 1, 3)
    assert (batch.accept_length, batch.accept_rate, batch.graph) == (6.1, 0.34, True)


def test_forward_iterations_in_the_batch_line() -> None:
    """`SGLANG_LOG_FORWARD_ITERS` puts a number into the line; it is read all the same."""
    log = parse_log(stamped(DECODE.replace("batch,", "batch [1234],")), UTC)
    assert log.decodes[0].tok_per_s == 429.69


def test_other_ranks_do_not_count_twice() -> None:
    """With tensor parallelism each rank logs its phases; rank 0 alone is counted."""
    load = ("Load weight begin. avail mem=80.00 GB", "Load weight end. elapsed=2.00 s, type=X,")
    log = parse_log([*stamped(*load, rank=" TP0"), *stamped(*load, rank=" TP1")], UTC)
    assert [phase.name for phase in log.phases] == ["load X"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("DFLASH draft greedy head kept eager (reason=added vocab).", "eager_draft_head"),
        ("Disable DFLASH draft cuda graph because only 0.40 GB GPU memory", "no_draft_graph"),
        ("Disable prefill CUDA graph because some layers do not apply", "no_graph"),
        ("DFLASH Triton accept/bonus failed; falling back to eager path: x", "kernel_fallback"),
        ("DFLASH Triton prepare_block failed; falling back to eager path", "kernel_fallback"),
        ("DFLASH fused KV materialization disabled: rope", "kernel_fallback"),
        ("DFLASH non-greedy verification is unavailable on this build", "greedy_fallback"),
        ("DFLASH block size mismatch: using speculative_num_draft", "block_size_mismatch"),
        (
            "DFLASH draft worker does not support attention_backend 'x' on C. "
            "Falling back to 'flashinfer'.",
            "attention_overridden",
        ),
        ("DFLASH only supports speculative_eagle_topk == 1; overriding", "spec_overridden"),
        ("Max running requests is reset to 48 for speculative decoding.", "concurrency_reset"),
        ("Failed to load plugin ddtree from group sglang.srt.plugins", "plugin_failed"),
        ("KV cache pool is full. Retract requests. #retracted_reqs: 1", "retracted"),
        ("Health check failed. Server couldn't get a response", "health_failed"),
        ("Scheduler watchdog timeout (self.watchdog_timeout=300)", "watchdog"),
        (DECODE.replace("graph: True", "graph: False"), "eager_decode"),
    ],
)
def test_silent_degradations_are_findings(text: str, code: str) -> None:
    """Each known line becomes one finding that quotes the line."""
    (finding,) = parse_log(stamped(text), UTC).findings
    assert finding.code == code
    assert finding.line == text
    assert finding.line_number == 1


@pytest.mark.parametrize(
    "text",
    [
        "DFLASH draft greedy head folded into the draft cuda graph (tp=1).",
        "DFLASH fused KV materialization enabled. n_layers=3",
        DECODE.replace("cuda graph: True", "cpu graph: False"),
        "server_args=ServerArgs(enable_torch_compile=False, x='Falling back to ')",
        'INFO:     127.0.0.1:1 - "GET /Compiling HTTP/1.1" 404 Not Found',
    ],
)
def test_sound_lines_are_no_findings(text: str) -> None:
    """Lines that resemble a degradation are not taken for one."""
    assert parse_log([READY, *stamped(text)], UTC).findings == ()


def test_compiling_counts_after_the_start_only() -> None:
    """Compiling is what a start is for; in a measured window it is a finding."""
    text = "Try DeepGEMM JIT Compiling for N=1"
    log = parse_log([*stamped(text), READY, *stamped(text, second=9)], UTC)
    assert [(f.code, f.at_unix_s) for f in log.findings] == [(FindingCode.COMPILING, AT + 9)]


def test_window_keeps_what_overlaps_it() -> None:
    """A stamp stands for its whole second: what may have fallen into the window is kept."""
    lines = [line for second in (2, 3, 4, 5) for line in stamped(DECODE, second=second)]
    log = parse_log(lines, UTC).between(AT + 3.5, AT + 4.2)
    # second 3 covers 3.0 to 4.0 and second 4 begins at 4.0; 2 ends before, 5 begins after
    assert [batch.at_unix_s for batch in log.decodes] == [AT + 3, AT + 4]


TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "a/b.py", line 3, in outer',
    "    inner()",
    '  File "a/c.py", line 7, in inner',
)


@pytest.mark.parametrize(
    "exception",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "torch.AcceleratorError: CUDA error: out of memory",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "MemoryError",
    ],
)
def test_out_of_memory_is_told_apart(exception: str) -> None:
    """Any spelling of a full memory ends as OUT_OF_MEMORY, with the deepest frame."""
    log = written(
        *stamped(f"Scheduler hit an exception: {TRACEBACK[0]}"), *TRACEBACK[1:], exception
    )
    assert log.failure is not None
    assert log.failure.status is Status.OUT_OF_MEMORY
    assert log.failure.frame == "a/c.py:7 in inner"


def test_chained_exception_keeps_its_cause() -> None:
    """The last exception is reported, and that memory was short is not forgotten on the way."""
    log = written(
        *stamped(f"Scheduler hit an exception: {TRACEBACK[0]}"),
        *TRACEBACK[1:],
        "torch.OutOfMemoryError: CUDA out of memory.",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        *TRACEBACK,
        "Exception: Capture cuda graph failed",
    )
    assert log.failure is not None
    assert log.failure.exception == "Exception"
    assert log.failure.status is Status.OUT_OF_MEMORY
    assert log.failure.fatal


def test_caught_exception_is_a_finding() -> None:
    """Batches after a traceback show that it was caught: a finding, no failure."""
    log = written(READY, *TRACEBACK, "ValueError: bad request", *stamped(DECODE))
    assert log.failure is None
    assert [finding.code for finding in log.findings] == [FindingCode.HANDLED_ERROR]
    assert "ValueError: bad request" in log.findings[0].line


def test_death_without_traceback() -> None:
    """A killed child leaves an exit code only, and that is the message."""
    crash = "Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT"
    log = written(READY, *stamped(crash, "SIGQUIT received. signum=None, frame=None."))
    assert log.failure is not None
    assert log.failure.message == "Subprocess scheduler_0 (pid=7) crashed with exit code -9"
    assert log.failure.status is Status.DIED_IN_REQUEST


def test_argument_parser_error() -> None:
    """A refused command line is a death at start whose message names the flag."""
    log = written("usage: sglang serve [-h]", "sglang serve: error: unrecognized arguments: --x")
    assert log.failure is not None
    assert str(log.failure) == "unrecognized arguments: --x"
    assert log.failure.status is Status.DIED_AT_START


def test_exception_of_the_main_process_is_kept() -> None:
    """A plain traceback at start is the failure, though the log cannot say that it was fatal."""
    log = written(*TRACEBACK, "ValueError: DFLASH needs a draft model")
    assert log.failure is not None
    assert not log.failure.fatal
    assert log.failure.at_unix_s is None
    assert str(log.failure).startswith("ValueError: DFLASH needs a draft model at a/c.py:7")


def test_incremental_equals_whole() -> None:
    """A log drawn in the middle changes nothing about the one at the end."""
    parser = LogParser(UTC)
    with (RECORDED / "dflash.log").open(newline="\n") as lines:
        for number, line in enumerate(lines):
            parser.feed(line)
            if number % 100 == 0:
                parser.log()
    assert parser.log() == recorded("dflash")


def test_garbage_never_raises() -> None:
    """Damaged lines of real logs raise nothing, and a sound line after them is read."""
    dice = random.Random(0)
    lines = (RECORDED / "crash-fp32-rmsnorm.log").read_text().split("\n")
    lines += (RECORDED / "dflash.log").read_text().split("\n")
    lines += ["[0000-00-00 00:00:00] x", "[9999-99-99 99:99:99] Decode batch", "\x00\ufffd", "["]
    parser = LogParser(UTC)
    for _ in range(2000):
        line = dice.choice(lines)[:2000]
        cut, length = dice.randrange(len(line) + 1), dice.randrange(9)
        parser.feed(
            line[:cut] + "".join(dice.choices("0 9:,=.-[]{}é\r", k=length)) + line[cut + length :]
        )
    before = len(parser.log().decodes)
    parser.feed(*stamped(DECODE))
    assert len(parser.log().decodes) == before + 1


def test_every_finding_has_a_sentence() -> None:
    """Codes are for machines; each has its own sentence for people."""
    assert len({code.sentence for code in FindingCode}) == len(FindingCode)
