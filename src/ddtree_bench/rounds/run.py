"""Run the sessions of a run in their order, a process each.

One that fails is tried again as often as the configuration says, and the others go on. A session
whose outputs exist is not run again.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddtree_bench.config import Config
from ddtree_bench.config.suggest import nearest
from ddtree_bench.errors import ConfigError, Fault
from ddtree_bench.layout import RunLayout
from ddtree_bench.rounds.plan import measured_later, plan, warning
from ddtree_bench.rounds.replies import Recording, is_recorded, record
from ddtree_bench.rounds.schedule import Turn, schedule_of
from ddtree_bench.server.deadline import Deadline
from ddtree_bench.session.spec import SessionSpec
from ddtree_bench.session.store import write_whole

TRY_AGAIN = 1
"""Exit code of a session that failed and may be tried once more."""


@dataclass(frozen=True, slots=True)
class RoundsRun:
    """What one call is about."""

    config: Config
    results: Path = Path("results")
    only: tuple[str, ...] = ()
    """Servers to measure; empty: all."""
    session_s: float | None = None
    """Seconds to expect of a server's first launch; None: as `ddtree_bench.rounds.plan` assumes."""
    deadline: Deadline = field(default_factory=lambda: Deadline.after(math.inf))

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The sessions in their order."""
        return tuple(
            turn for turn in schedule_of(self.config) if not self.only or turn.server in self.only
        )

    def folder(self, turn: Turn) -> Path:
        """Where a session has its files."""
        return RunLayout.of(self.config.run, self.results).session(turn.server, turn.launch)

    def is_finished(self, turn: Turn) -> bool:
        """Whether a session has written its outputs."""
        names = ("launch.json", "cells.jsonl", "logprobs.jsonl")
        return all((self.folder(turn) / name).exists() for name in names)

    def expected_s(self, turn: Turn) -> float:
        """How long a session may take, from its server's earlier launches where there are any."""
        planned = next(each for each in plan(self.config, self.results) if each.turn == turn)
        if planned.measured_before or self.session_s is None:
            return planned.expected_s
        return self.session_s


def run_rounds(rounds: RoundsRun) -> int:
    """Run what is not finished; returns the exit code.

    Raises:
        ConfigError: `only` names a server that there is not, or prompts are missing.
    """
    _check_names(rounds)
    if later := measured_later(rounds.config, rounds.results):
        _say(warning(later))
    for turn in rounds.turns:
        _write_spec(rounds, turn)
    if not _record_replies(rounds):
        return 1
    waiting = [turn for turn in rounds.turns if not rounds.is_finished(turn)]
    _say(f"{len(rounds.turns)} sessions, {len(rounds.turns) - len(waiting)} finished before")
    for number, turn in enumerate(waiting, 1):
        expected_s, left_s = rounds.expected_s(turn), rounds.deadline.left_s
        place = f"[{number}/{len(waiting)}] {turn.server} launch {turn.launch}"
        if expected_s > left_s:
            _say(f"{place}: about {expected_s:.0f} s, {left_s:.0f} s left; call again to go on")
            return 1
        _say(f"{place}: about {expected_s:.0f} s")
        _run_session(rounds, turn)
    missing = [turn for turn in rounds.turns if not rounds.is_finished(turn)]
    for turn in missing:
        _say(f"{turn.server} launch {turn.launch}: no result, see what it said above")
    return 1 if missing else 0


def _record_replies(rounds: RoundsRun) -> bool:
    """Record what conversations go on with, if that is to be done; False for want of time."""
    recording = Recording(rounds.config, rounds.results)
    if is_recorded(recording):
        return True
    expected_s, left_s = rounds.expected_s(schedule_of(rounds.config)[0]), rounds.deadline.left_s
    if expected_s > left_s:
        _say(f"replies: at most about {expected_s:.0f} s, {left_s:.0f} s left; call again to go on")
        return False
    _say(f"replies of {rounds.config.analysis.baseline}, for conversations to go on with")
    for attempt in range(1, rounds.config.protocol.attempts + 1):
        if record(replace(recording, attempt=attempt)) != TRY_AGAIN:
            break
    return True


def _check_names(rounds: RoundsRun) -> None:
    servers = rounds.config.servers
    faults = [
        Fault("--only", None, "", f"there is no server `{name}`{nearest(name, servers)}")
        for name in rounds.only
        if name not in servers
    ]
    if faults:
        raise ConfigError(faults)


def _write_spec(rounds: RoundsRun, turn: Turn) -> None:
    """Write a session's spec unless it is there; what an older spec led to is not finished."""
    folder = rounds.folder(turn)
    path = folder / "spec.json"
    text = SessionSpec.of(rounds.config, turn.server, turn.launch).to_json()
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    # first: an interruption in between must not leave old results beside a new spec
    (folder / "cells.jsonl").unlink(missing_ok=True)
    write_whole(path, text)


def _run_session(rounds: RoundsRun, turn: Turn) -> None:
    spec = str(rounds.folder(turn) / "spec.json")
    command = (sys.executable, "-m", "ddtree_bench.session", "--spec", spec)
    for attempt in range(1, rounds.config.protocol.attempts + 1):
        more = ("--results", str(rounds.results), "--attempt", str(attempt))
        if _exit_code((*command, *more)) != TRY_AGAIN:
            return


def _exit_code(command: Sequence[str]) -> int:
    """How a command ends; a signal to us is passed on, and waits until it has been obeyed."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
