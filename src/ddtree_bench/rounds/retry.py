"""Sessions of a run in which something failed, as the Snakemake targets that try them again.

`python -m ddtree_bench.rounds.retry CONFIG` prints them; 2 if the configuration is at fault.
Cells that were measured stay in the store, so that a retried session measures only what failed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddtree_bench.config import Config
from ddtree_bench.errors import BenchError
from ddtree_bench.layout import RunLayout
from ddtree_bench.rounds.arguments import config_of, require_same_sample, run_parser
from ddtree_bench.rounds.schedule import schedule_of
from ddtree_bench.session.store import read_cells
from ddtree_bench.status import Status


def failed_sessions(config: Config, results: Path = Path("results")) -> list[Path]:
    """`launch.json` of every session of which the launch or a cell failed.

    Raises ConfigError if the results are those of another `sample`.
    """
    require_same_sample(config, results)
    layout = RunLayout.of(config.run, results)
    sessions = [layout.session(turn.server, turn.launch) for turn in schedule_of(config)]
    return [folder / "launch.json" for folder in sessions if _failed(folder)]


def _failed(session: Path) -> bool:
    return any(Status(status).failed for status in _statuses(session))


def _statuses(session: Path) -> Iterator[str]:
    """Of the launch and its cells; none for a session that has not run."""
    launch, cells = session / "launch.json", session / "cells.jsonl"
    if launch.exists():
        yield json.loads(launch.read_text(encoding="utf-8"))["status"]
    if cells.exists():
        yield from (measured.cell.status for measured in read_cells(cells))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 2 if the configuration is at fault."""
    given = run_parser("retry", __doc__).parse_args(arguments)
    try:
        print(*failed_sessions(config_of(given), given.results))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
