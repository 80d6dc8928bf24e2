"""Wait until a server really answers, or tell why it never will."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ddtree_bench.client.client import Client
from ddtree_bench.errors import RequestError, ServerError
from ddtree_bench.records import Sampling
from ddtree_bench.server.deadline import Deadline
from ddtree_bench.server.death import death_of, exit_code_after
from ddtree_bench.server.running import Running
from ddtree_bench.status import Status

PROOF_TOKENS = 16
"""Length of the first answer; speculation shows its faults only after several steps."""
PROOF_AT_LEAST = 9
_POLL_S = 0.2


def wait_until_ready(
    server: Running, client: Client, prompt: Sequence[int], deadline: Deadline
) -> None:
    """Return once the process lives, `/health_generate` agrees and a real answer came.

    Args:
        server: asked for its exit code before every look at its health.
        client: its timeout bounds a single question.
        prompt: token ids `[P]` of the first real request.
        deadline: of all waiting together.

    Raises:
        ServerError: DIED_AT_START or OUT_OF_MEMORY, with the end of the log; NOT_READY when the
            deadline passes or the first answer is none.
    """
    _wait_for_health(server, client, deadline)
    sampling = Sampling(max_new_tokens=PROOF_TOKENS, ignore_eos=True)
    exchange = client.generate(prompt, sampling)
    exit_code_after(server, exchange.status)
    _raise_if_dead(server)
    if not exchange.status.ok:
        raise _not_ready(server, f"its first answer failed: {exchange.detail}")
    tokens = exchange.answer.completion_tokens
    if tokens is None or tokens < PROOF_AT_LEAST:
        raise _not_ready(server, f"its first answer holds {tokens} tokens, not {PROOF_TOKENS}")


def _wait_for_health(server: Running, client: Client, deadline: Deadline) -> None:
    seen = "it was never asked"
    while not deadline.passed:
        _raise_if_dead(server)
        try:
            client.health_generate(timeout_s=min(client.timeout_s, max(1.0, deadline.left_s)))
            return
        except RequestError as error:
            seen = error.what
        time.sleep(min(_POLL_S, deadline.left_s))
    _raise_if_dead(server)
    raise _not_ready(server, f"deadline passed; {seen}")


def _raise_if_dead(server: Running) -> None:
    code = server.exit_code()
    if code is not None:
        raise death_of(server, code, Status.DIED_AT_START)


def _not_ready(server: Running, what: str) -> ServerError:
    return ServerError(
        Status.NOT_READY,
        what,
        log_tail=server.log_tail(),
        remedy="raise `startup_timeout_s` if the log shows that it was still loading",
    )
