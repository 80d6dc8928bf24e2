"""What a run would do: sessions in order, their cells, and how long they may take.

`python -m ddtree_bench.rounds.plan config/config.yaml` prints it and starts nothing. Where an
earlier launch of the same server was measured, its seconds are used; the rest is an assumption that
the output states.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddtree_bench.config import Config, Workload
from ddtree_bench.errors import BenchError
from ddtree_bench.layout import RunLayout
from ddtree_bench.prompts import prompts_of
from ddtree_bench.records import CellId
from ddtree_bench.rounds.arguments import config_of, run_parser
from ddtree_bench.rounds.replies import lacking
from ddtree_bench.rounds.schedule import Turn, schedule_of
from ddtree_bench.session.cells import cells_of
from ddtree_bench.session.spec import SessionSpec
from ddtree_bench.workloads.hold import most_requests

ASSUMED_TOK_PER_S = {"reference": 28.0, "sglang": 300.0, "attach": 300.0}
"""Of one request, by engine; on two CPU cores or one data-centre GPU."""
ASSUMED_START_S = {"reference": 8.0, "sglang": 90.0, "attach": 0.0}
ASSUMED_FILL = 0.7
"""Share of `max_new_tokens` that an answer uses."""


@dataclass(frozen=True, slots=True)
class PlannedSession:
    """One launch with what it asks of its server."""

    turn: Turn
    cells: int
    most_requests: int
    most_tokens: int
    expected_s: float
    measured_before: bool
    """`expected_s` comes from an earlier launch, not from assumptions."""
    if_needed: bool
    """It is left out if earlier rounds gave intervals that are narrow enough."""


def plan(config: Config, results: Path = Path("results")) -> tuple[PlannedSession, ...]:
    """Every session of the run, in the order in which they run.

    Raises:
        ConfigError: a prompt file is missing or faulty.
    """
    seconds = _measured_seconds(config, results)
    return tuple(_planned(config, turn, seconds.get(turn.server)) for turn in schedule_of(config))


def _planned(config: Config, turn: Turn, measured_s: float | None) -> PlannedSession:
    spec = SessionSpec.of(config, turn.server, turn.launch)
    engine = spec.server.engine
    cells = list(cells_of(spec))
    requests = tokens = 0
    assumed_s = ASSUMED_START_S[engine]
    for cell in cells:
        workload = spec.workloads[cell.workload]
        conversations, sent = _asked(workload, cell, spec.protocol.seed)
        requests += sent
        tokens += sent * workload.max_new_tokens
        # those in flight share a server that is assumed to keep its speed for each; the last ones
        # of a cell leave places empty
        share_in_turn = math.ceil(conversations / cell.concurrency) / conversations
        in_turn = sent * workload.max_new_tokens * ASSUMED_FILL * share_in_turn
        arriving_s = 0.0 if cell.arrivals_per_s is None else sent / cell.arrivals_per_s
        assumed_s += max(arriving_s, in_turn / ASSUMED_TOK_PER_S[engine])
    return PlannedSession(
        turn=turn,
        cells=len(cells),
        most_requests=requests,
        most_tokens=tokens,
        expected_s=assumed_s if measured_s is None else measured_s,
        measured_before=measured_s is not None,
        if_needed=spec.needed_by is not None,
    )


def _asked(workload: Workload, cell: CellId, seed: int) -> tuple[int, int]:
    """Conversations of a cell, and its requests if every tool loop runs to its step limit."""
    prompts = prompts_of(workload, seed, cell.concurrency)
    once = sum(most_requests(prompt, workload) for prompt in prompts)
    draws = workload.draws or 1
    return len(prompts) * draws, once * draws


def _measured_seconds(config: Config, results: Path) -> dict[str, float]:
    """Longest finished launch of each server, from the run's own records."""
    layout = RunLayout.of(config.run, results)
    longest: dict[str, float] = {}
    for turn in schedule_of(config):
        path = layout.session(turn.server, turn.launch) / "launch.json"
        if path.exists():
            launch = json.loads(path.read_text(encoding="utf-8"))
            seconds = launch["ended_unix_s"] - launch["started_unix_s"]
            if launch["status"] == "ok" and seconds > 0:
                longest[turn.server] = max(longest.get(turn.server, 0.0), seconds)
    return longest


def measured_later(config: Config, results: Path) -> tuple[str, ...]:
    """Servers without a finished launch while others have all theirs: no round in common is left.

    Their comparisons will be undecided. Of a single round it would be the same one.
    """
    layout = RunLayout.of(config.run, results)
    finished: dict[str, list[bool]] = {}
    for turn in schedule_of(config):
        text = SessionSpec.of(config, turn.server, turn.launch).to_json()
        folder = layout.session(turn.server, turn.launch)
        finished.setdefault(turn.server, []).append(_is_finished(folder, text))
    if config.protocol.rounds == 1 or not any(map(all, finished.values())):
        return ()
    return tuple(server for server, launches in finished.items() if not any(launches))


def _is_finished(folder: Path, spec_text: str) -> bool:
    """Whether a session has outputs, and of this spec."""
    spec = folder / "spec.json"
    known = spec.exists() and spec.read_text(encoding="utf-8") == spec_text
    return known and (folder / "launch.json").exists()


def warning(later: Sequence[str]) -> str:
    """What it means that these servers are measured later than others."""
    return (
        f"{', '.join(later)}: measured after the rounds of the others, and `undecided` against "
        f"them; `make again SERVER={later[0]}` measures all in common rounds"
    )


def render(
    config: Config, sessions: tuple[PlannedSession, ...], results: Path = Path("results")
) -> Iterator[str]:
    """Lines for a terminal."""
    yield f"run {config.run}: {len(sessions)} sessions, report/{config.run}.pdf"
    yield f"{'':>3}  {'server':<24} {'launch':>6} {'cells':>6} {'requests':>9} {'minutes':>8}"
    for number, session in enumerate(sessions, 1):
        yield (
            f"{number:>3}  {session.turn.server:<24} {session.turn.launch:>6} {session.cells:>6} "
            f"{'≤ ' + str(session.most_requests):>9} {session.expected_s / 60:>8.1f}"
            f"{'' if session.measured_before else '  (assumed)'}"
            f"{'  (if needed)' if session.if_needed else ''}"
        )
    talks = sum(map(len, lacking(config).values()))
    if talks:
        baseline = config.analysis.baseline
        yield f"before them {baseline} holds {talks} conversations once, for their replies"
    minutes = sum(session.expected_s for session in sessions) / 60
    requests = sum(session.most_requests for session in sessions)
    tokens = sum(session.most_tokens for session in sessions)
    yield f"in all about {minutes:.0f} minutes, ≤ {requests} requests, ≤ {tokens} tokens"
    if later := measured_later(config, results):
        yield warning(later)
    if not all(session.measured_before for session in sessions):
        engines = sorted({config.servers[session.turn.server].engine for session in sessions})
        rates = ", ".join(f"{engine} {ASSUMED_TOK_PER_S[engine]:g} tok/s" for engine in engines)
        yield f"assumed: {rates}; answers use {ASSUMED_FILL:.0%} of their length limit"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the plan of a configuration; 2 if it is faulty."""
    given = run_parser("plan", __doc__).parse_args(arguments)
    try:
        config = config_of(given)
        for line in render(config, plan(config, given.results), given.results):
            print(line)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
