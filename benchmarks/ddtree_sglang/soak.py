"""Many short requests of every kind: no crash, no cache slot lost, acceptance as at the start."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from asking import Answer, Question, Server, eval_questions
from run import Run
from sameness import acceptance
from servers import TREE, CheckError, JsonObject, log_text

IN_FLIGHT = 40
MOST_TOKENS, LONGEST_PROMPT = 40, 400
ABORTED, SHARED = 0.05, 0.3
"""Shares of requests that are left, and that begin like another."""
FIFTHS = 5
FLAT = 0.03
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Order:
    """One request of the soak."""

    ids: tuple[int, ...]
    tokens: int
    sampling: JsonObject
    leave_after: int | None


def orders(questions: Sequence[Question], count: int, seed: int = 0) -> list[Order]:
    """Random prompts, lengths, sampling and aborts; the mixture is the same all along."""
    rng = random.Random(seed)
    pool = [token for question in questions for token in question.ids]
    return [_order(rng, pool, questions) for _ in range(count)]


def _order(rng: random.Random, pool: Sequence[int], questions: Sequence[Question]) -> Order:
    if rng.random() < SHARED:
        ids = rng.choice(questions).ids
    else:
        begin = rng.randrange(len(pool) - LONGEST_PROMPT)
        ids = tuple(pool[begin : begin + rng.randint(5, LONGEST_PROMPT)])
    sampled = {"temperature": 1.0, "top_p": rng.choice([1.0, 0.9]), "top_k": rng.choice([-1, 20])}
    sampling: JsonObject = sampled if rng.random() < 0.5 else {}
    leave = rng.randint(1, 3) if rng.random() < ABORTED else None
    return Order(ids, rng.randint(1, MOST_TOKENS), sampling, leave)


def soak(run: Run) -> JsonObject:
    """Send all orders, then look at slots, log and acceptance."""
    (server,) = run.servers(TREE)
    before = _used_slots(server)
    wanted = orders(eval_questions(run.target), run.requests)
    begun_s = time.monotonic()

    def send(order: Order) -> Answer | str | None:
        if run.is_late():
            return None
        try:
            if order.leave_after is not None:
                server.hang_up(order.ids, order.leave_after, **order.sampling)
                return None
            return server.ask_whole(order.ids, order.tokens, **order.sampling)
        except (CheckError, OSError, ValueError) as error:
            return repr(error)

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        results = list(pool.map(send, wanted))
    wall_s = time.monotonic() - begun_s
    answers = [each for each in results if isinstance(each, Answer)]
    errors = [each for each in results if isinstance(each, str)]
    left = sum(order.leave_after is not None for order in wanted)
    done = len(answers) + (left if not run.is_late() else 0)
    run.target_of("soak: requests", float(done), least=20_000)
    run.report.check("soak: all are answered", not errors, errors[:3])
    after = _used_slots(server)
    run.report.check("soak: no slot is lost", after == before, f"{before} → {after} slots in use")
    text = log_text(server.name, run.launch)
    bad = [line for line in text.splitlines() if "Traceback" in line or "leak" in line]
    run.report.check("soak: the log is clean", not bad, bad[:3])
    fifths = _by_fifth(answers)
    flat = bool(fifths) and abs(fifths[-1] / fifths[0] - 1) <= FLAT
    run.report.check("soak: acceptance is flat", flat, [round(each, 3) for each in fifths])
    return {"answered": len(answers), "left": left, "wall_s": wall_s, "acceptance": fifths}


def _by_fifth(answers: Sequence[Answer]) -> list[float]:
    some = [answer for answer in answers if answer.steps > 0]
    size = len(some) // FIFTHS
    return [acceptance(some[i * size : (i + 1) * size]) for i in range(FIFTHS)] if size else []


def _used_slots(server: Server) -> object:
    """Cache slots in use once nothing runs and the prefix cache is empty.

    Raises CheckError if the server does not come to rest.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    used: object = None
    while time.monotonic() < deadline_s:
        server.flush()
        time.sleep(1.0)  # the server publishes its load now and then
        load = server.get("/v1/loads")["loads"]
        assert isinstance(load, list)
        used = load[0]["num_used_tokens"]
        if load[0]["num_running_reqs"] == 0 and used == 0:
            return used
    return used
