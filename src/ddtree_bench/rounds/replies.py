"""Record what conversations go on with: `python -m ddtree_bench.rounds.replies CONFIG`.

Before the first round the baseline holds every conversation once that no file of replies has, and
all servers then go on with its replies, the baseline itself too: so all render the same prompts.
Nothing of it is timed or counted. Without a conversation that lacks replies no server is started.

`results/RUN/replies.jsonl` holds what was recorded; copied and named in `workloads.NAME.replies` it
serves other runs of the same target, too.

Exit code 0: the replies that there are were written; conversations that failed for good have none,
and go on with each server's own. 1: something failed, another attempt is allowed. 2: the
configuration or this machine is at fault.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddtree_bench.config import Config, Workload
from ddtree_bench.errors import BenchError
from ddtree_bench.hashing import canonical_json, file_sha256
from ddtree_bench.layout import RunLayout
from ddtree_bench.prompts import Prompt, conversations
from ddtree_bench.records import Launch, RequestRecord
from ddtree_bench.replies import Replies, read_replies, replies_text
from ddtree_bench.rounds.arguments import config_of, run_parser
from ddtree_bench.session.interrupts import exit_in_order
from ddtree_bench.session.run import Session, run
from ddtree_bench.session.spec import NOT_MEASURED, SessionSpec
from ddtree_bench.session.store import read_cells, write_whole

RUN = "replies"
"""Name of the run of one session that records them, in the folder of the run that needs them."""

Lacking = Mapping[str, Sequence[Prompt]]
"""Conversations without replies, by workload."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One call: whose replies, and where they go."""

    config: Config
    results: Path = Path("results")
    attempt: int = 1

    @property
    def layout(self) -> RunLayout:
        """Of the run that needs the replies."""
        return RunLayout.of(self.config.run, self.results)

    @property
    def session(self) -> Path:
        """Outputs of the session that records."""
        baseline = self.config.analysis.baseline
        return RunLayout.of(RUN, self.layout.root).session(baseline, 1)


def lacking(config: Config) -> dict[str, list[Prompt]]:
    """Conversations of which neither prompt file nor a file of replies has the replies.

    Raises:
        ConfigError: a file is missing or faulty.
    """
    return {
        name: talks
        for name, workload in config.workloads.items()
        if workload.replays and (talks := _unanswered(workload, config.protocol.seed))
    }


def _unanswered(workload: Workload, seed: int) -> list[Prompt]:
    return [prompt for prompt in conversations(workload, seed) if not prompt.replies]


def fingerprint(config: Config) -> str:
    """What decides the replies, as text; empty if none is to be recorded."""
    missing = lacking(config)
    if not missing:
        return ""
    asked = {name: [talk.questions_sha256 for talk in talks] for name, talks in missing.items()}
    server = config.servers[config.analysis.baseline]
    return canonical_json(
        {
            "server": server.model_copy(update=dict.fromkeys(NOT_MEASURED)).model_dump(),
            "asked": asked,
            "how": {
                name: _recorded(config.workloads[name], talks, "").model_dump()
                for name, talks in missing.items()
            },
        }
    )


def record(recording: Recording) -> int:
    """Record what is lacking and write the run's file of replies; returns the exit code.

    Raises:
        ConfigError: the configuration is at fault.
        MachineError: this machine lacks something.
    """
    missing = lacking(recording.config)
    found: list[Replies] = []
    if missing:
        spec = _spec(recording, missing)
        code = run(Session(spec, recording.layout.root, recording.attempt))
        if code != 0:
            return code
        found = list(_answered(recording, missing))
    wanted = sum(map(len, missing.values()))
    print(f"{len(found)} of {wanted} conversations have recorded replies", file=sys.stderr)
    _write_changed(recording.layout.replies, replies_text(found))
    return 0


def is_recorded(recording: Recording) -> bool:
    """Whether nothing is lacking that the run's own file of replies does not hold.

    Raises ConfigError if a file is missing or faulty.
    """
    missing = lacking(recording.config)
    if not missing:
        return True
    if not recording.layout.replies.exists():
        return False
    known = read_replies([recording.layout.replies])
    return all(prompt.questions_sha256 in known for talks in missing.values() for prompt in talks)


def _write_changed(path: Path, text: str) -> None:
    """Write a file unless it says so already: a new time would ask for all sessions again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_whole(path, text)


def _spec(recording: Recording, missing: Lacking) -> SessionSpec:
    """The session in which the baseline holds what is missing, with its own replies."""
    config = recording.config
    workloads = {
        name: _recorded(config.workloads[name], talks, str(_write_prompts(recording, name, talks)))
        for name, talks in missing.items()
    }
    baseline = config.analysis.baseline
    return SessionSpec(
        run=RUN,
        name=baseline,
        server=config.servers[baseline],
        launch=1,
        workloads=workloads,
        prompts_sha256={name: file_sha256(Path(w.prompts)) for name, w in workloads.items()},
        protocol=config.protocol.model_copy(update={"adaptive": None}),
    )


def _write_prompts(recording: Recording, name: str, talks: Sequence[Prompt]) -> Path:
    path = recording.layout.root / RUN / "prompts" / f"{name}.jsonl"
    lines = (
        canonical_json(prompt.model_dump(by_alias=True, exclude_defaults=True)) for prompt in talks
    )
    write_whole(path, "".join(f"{line}\n" for line in lines))
    return path


def _recorded(workload: Workload, talks: Sequence[Prompt], prompts: str) -> Workload:
    """The workload as it is asked once, to be recorded: with own replies, all at once."""
    changes = {
        "prompts": prompts,
        "prompt_format": "prompts",
        "sample": "all",
        "concurrency": (min(max(workload.concurrency), len(talks)),),
        "arrivals_per_s": (),
        "arrivals": "drawn",
        "repeats": 1,
        "rounds": None,
        "history": "own",
        "replies": (),
    }
    return workload.model_copy(update=changes)


def _answered(recording: Recording, missing: Lacking) -> Iterator[Replies]:
    """The replies of every conversation that came to its end."""
    model_sha256 = _model_sha256(recording.session / "launch.json")
    for measured in read_cells(recording.session / "cells.jsonl"):
        said = _by_prompt(measured.requests)
        for prompt in missing.get(measured.cell.cell.workload, ()):
            replies = said.get(prompt.id, ())
            if measured.cell.status.ok and replies:
                yield Replies(
                    prompt_id=prompt.id,
                    questions_sha256=prompt.questions_sha256,
                    replies=replies,
                    model_sha256=model_sha256,
                )


def _by_prompt(requests: Iterable[RequestRecord]) -> dict[str, tuple[str, ...]]:
    said: dict[str, tuple[str, ...]] = {}
    for request in requests:
        said[request.prompt_id] = (*said.get(request.prompt_id, ()), request.text)
    return said


def _model_sha256(path: Path) -> str | None:
    machine = Launch.model_validate_json(path.read_bytes()).machine
    found: str | None = machine.get("model_sha256")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is explained above."""
    parser = run_parser("replies", __doc__)
    parser.add_argument("--attempt", type=int, default=1, help="counts from 1")
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(levelname)s: %(message)s")
    exit_in_order()
    try:
        return record(Recording(config_of(given), given.results, given.attempt))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
