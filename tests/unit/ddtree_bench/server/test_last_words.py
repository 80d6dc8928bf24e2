from pathlib import Path

import pytest

from ddtree_bench.server.last_words import last_error, says_out_of_memory, tail

FIXTURES = Path(__file__).parents[3] / "fixtures/sglang-0.5.17-h200"


def test_a_real_crash_is_told_by_its_exception():
    """Lines that come after the exception say less."""
    line = last_error(tail(FIXTURES / "crash-fp32-rmsnorm.log"))
    assert line is not None
    assert line.startswith("RuntimeError: rmsnorm(at::Tensor&")
    assert line.endswith("failed to dispatch data type Float")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", None),
        ("loading\nready\n", "ready"),
        ("error: bind failed\nbye", "error: bind failed"),
        (
            "torch.OutOfMemoryError: CUDA out of memory.\nKilled",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        ("ValueError: first\nKeyError: 'second'\n", "KeyError: 'second'"),
        ("[2026-01-01 10:00:00] RuntimeError: no\nend", "[2026-01-01 10:00:00] RuntimeError: no"),
        ("an Error in the middle\nlast", "an Error in the middle"),
    ],
)
def test_the_telling_line(text, line):
    """An exception before a complaint before the last line."""
    assert last_error(text) == line


@pytest.mark.parametrize(
    "text", ["CUDA out of memory. Tried", "MemoryError", "std::bad_alloc", "Cannot allocate memory"]
)
def test_words_of_failed_allocations(text):
    """GPU, Python, C++ and the kernel say it differently."""
    assert says_out_of_memory(text)


@pytest.mark.parametrize("name", ["ar", "dflash", "crash-fp32-rmsnorm"])
def test_real_logs_without_a_failed_allocation(name):
    """Reports of memory use are no failures."""
    assert not says_out_of_memory((FIXTURES / f"{name}.log").read_text(encoding="utf-8"))


def test_the_tail_of_a_long_log(tmp_path):
    """Only the last lines, however long the log and whatever its bytes."""
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1_000_000 + b"\n" + b"\xff\n" + b"\n".join([b"line"] * 5))
    assert tail(path, lines=6) == "\ufffd\n" + "\n".join(["line"] * 5)
    assert tail(tmp_path / "none") == ""
