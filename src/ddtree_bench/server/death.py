"""How a server that ended is told: status, words, log."""

from __future__ import annotations

from ddtree_bench.errors import ServerError
from ddtree_bench.server.last_words import last_error, says_out_of_memory
from ddtree_bench.server.process import exit_sentence
from ddtree_bench.server.running import Running
from ddtree_bench.status import Status

SETTLE_S = 5.0


def death_status(otherwise: Status, log_tail: str) -> Status:
    """`OUT_OF_MEMORY` if the log says so, else the status of the phase in which the server died."""
    return Status.OUT_OF_MEMORY if says_out_of_memory(log_tail) else otherwise


def death_sentence(exit_code: int, log_tail: str) -> str:
    """Exit code and the telling line of the log, on one line."""
    line = last_error(log_tail)
    said = "its log is empty" if line is None else f"last error: {line}"
    return f"{exit_sentence(exit_code)}; {said}"


def exit_code_after(server: Running, status: Status) -> int | None:
    """The exit code of a server that just failed a request, waited for where that makes sense.

    A connection ends a moment before its process does, so a lost one is given `SETTLE_S`.
    """
    lost = status in (Status.UNREACHABLE, Status.MALFORMED)
    return server.wait_for_exit(SETTLE_S) if lost else server.exit_code()


def death_of(server: Running, exit_code: int, otherwise: Status) -> ServerError:
    """The error to raise for a server that ended by itself."""
    log_tail = server.log_tail()
    status = death_status(otherwise, log_tail)
    remedy = (
        "lower the budget, the batch or the memory share of this server"
        if status is Status.OUT_OF_MEMORY
        else "read the whole log"
    )
    what = death_sentence(exit_code, log_tail)
    return ServerError(status, what, log_tail=log_tail, remedy=remedy)
