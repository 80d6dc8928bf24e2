"""How the end of a server is told."""

from dataclasses import dataclass

import pytest

from ddtree_bench.server.death import how_it_died
from ddtree_bench.server.log import parse_log
from ddtree_bench.status import Status

TRACEBACK = """\
[2026-11-29 20:00:01] Scheduler hit an exception: Traceback (most recent call last):
  File "scheduler.py", line 7, in run_batch
torch.AcceleratorError: CUDA error: an illegal memory access was encountered
"""
CAUGHT = TRACEBACK.replace("Scheduler hit an exception: ", "")


@dataclass
class Dead:
    """A server that ended with this log."""

    log: str

    def log_tail(self) -> str:
        """All of it."""
        return self.log

    def failure(self):
        """What the parser finds in it."""
        return parse_log(self.log.splitlines()).failure


@pytest.mark.parametrize(
    ("code", "log", "status", "said"),
    [
        (
            1,
            TRACEBACK,
            Status.DIED_IN_REQUEST,
            "exit code 1; torch.AcceleratorError: CUDA error: an illegal memory access was "
            "encountered at scheduler.py:7 in run_batch",
        ),
        (1, "no traceback", Status.DIED_IN_REQUEST, "exit code 1; last error: no traceback"),
        (1, "", Status.DIED_IN_REQUEST, "exit code 1; its log is empty"),
        (-9, TRACEBACK, Status.DIED_IN_REQUEST, "killed by SIGKILL; torch.AcceleratorError: "),
        (
            1,
            TRACEBACK.replace("an illegal memory access was encountered", "out of memory"),
            Status.OUT_OF_MEMORY,
            "exit code 1; torch.AcceleratorError: CUDA error: out of memory at ",
        ),
    ],
)
def test_the_exception_says_more_than_the_last_line(code, log, status, said):
    """Type, message and place, or the last telling line where no exception was printed."""
    found, sentence = how_it_died(Dead(log), code, Status.DIED_IN_REQUEST)
    assert found is status
    assert sentence.startswith(said)


def test_an_exception_that_was_survived_did_not_kill():
    """SIGKILL from outside, after an exception that nothing says was fatal: the last line."""
    log = CAUGHT + "[2026-11-29 20:00:02] still here\n"
    _, sentence = how_it_died(Dead(log), -9, Status.DIED_IN_REQUEST)
    assert sentence.startswith("killed by SIGKILL; last error: ")
