"""How a server that ended is told: status, words, log."""

from __future__ import annotations

import signal

from ddtree_bench.errors import ServerError
from ddtree_bench.server.last_words import last_error, says_out_of_memory
from ddtree_bench.server.process import exit_sentence
from ddtree_bench.server.running import Running
from ddtree_bench.status import Status

SETTLE_S = 5.0


def how_it_died(server: Running, exit_code: int, otherwise: Status) -> tuple[Status, str]:
    """Status and sentence of a server that ended by itself.

    The exception that its log tells of, with phase and place, says most; without one the last
    telling line does.

    Args:
        server: which ended.
        exit_code: negative for a signal.
        otherwise: status of the phase in which it ended, unless it ran out of memory.
    """
    failure = server.failure()
    if failure is not None and exit_code == -signal.SIGKILL and not failure.fatal:
        failure = None  # an exception that it had survived; who killed it is not in its log
    log_tail = server.log_tail()
    memory = failure is not None and failure.status is Status.OUT_OF_MEMORY
    status = Status.OUT_OF_MEMORY if memory or says_out_of_memory(log_tail) else otherwise
    said = _last_line(log_tail) if failure is None else str(failure)
    return status, f"{exit_sentence(exit_code)}; {said}"


def _last_line(log_tail: str) -> str:
    line = last_error(log_tail)
    return "its log is empty" if line is None else f"last error: {line}"


def exit_code_after(server: Running, status: Status) -> int | None:
    """The exit code of a server that just failed a request, waited for where that makes sense.

    A connection ends a moment before its process does, so a lost one is given `SETTLE_S`.
    """
    lost = status in (Status.UNREACHABLE, Status.MALFORMED)
    return server.wait_for_exit(SETTLE_S) if lost else server.exit_code()


def death_of(server: Running, exit_code: int, otherwise: Status) -> ServerError:
    """The error to raise for a server that ended by itself."""
    status, what = how_it_died(server, exit_code, otherwise)
    remedy = (
        "lower the budget, the batch or the memory share of this server"
        if status is Status.OUT_OF_MEMORY
        else "read the whole log"
    )
    return ServerError(status, what, log_tail=server.log_tail(), remedy=remedy)
