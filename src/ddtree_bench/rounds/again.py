"""Measure servers once more: `python -m ddtree_bench.rounds.again CONFIG SERVER [--alone]`.

What was measured of a server, and of all servers that it is compared with, is put aside, so that
the next run measures them again in the same rounds. Alone, it would have no round in common with
the others, and its comparisons would stay undecided.

Nothing is lost: `results/RUN/replaced/` keeps what was put aside.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ddtree_bench.config import Config, load_config
from ddtree_bench.config.suggest import nearest
from ddtree_bench.errors import BenchError, ConfigError, Fault
from ddtree_bench.layout import RunLayout
from ddtree_bench.session.store import CellStore, read_cells
from ddtree_bench.tables.comparisons import pairs_of


def with_opponents(config: Config, server: str) -> tuple[str, ...]:
    """The server and those that it is compared with, in the configuration's order.

    Raises ConfigError if there is no such server.
    """
    if server not in config.servers:
        what = f"there is no server `{server}`{nearest(server, config.servers)}"
        raise ConfigError([Fault("SERVER", None, "", what)])
    pairs = [{pair.candidate, pair.reference} for pair in pairs_of(config)]
    wanted = {server}.union(*(pair for pair in pairs if server in pair))
    return tuple(name for name in config.servers if name in wanted)


def put_aside(layout: RunLayout, servers: Iterable[str]) -> Path:
    """Move sessions and stored cells of these servers away; returns where they are now."""
    aside = RunLayout(_next_folder(layout.root / "replaced"))
    for server in servers:
        sessions = layout.root / "sessions" / server
        for path in sorted(sessions.glob("*/cells.jsonl")):
            for measured in read_cells(path):
                _move(CellStore(layout.cells).path(measured.cell.key), aside.cells)
        _move(sessions, aside.root / "sessions")
    return aside.root


def _next_folder(parent: Path) -> Path:
    taken = [int(each.name) for each in parent.glob("*") if each.name.isdigit()]
    return parent / str(max(taken, default=0) + 1)


def _move(path: Path, folder: Path) -> None:
    if path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.rename(folder / path.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 2 if the configuration is at fault or has no such server."""
    parser = argparse.ArgumentParser(
        prog="python -m ddtree_bench.rounds.again",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", type=Path, help="configuration of the run")
    parser.add_argument("server", help="key under `servers`")
    parser.add_argument("--alone", action="store_true", help="leave its opponents as they are")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of all runs")
    given = parser.parse_args(arguments)
    try:
        config = load_config(given.config)
        servers = with_opponents(config, given.server)
        chosen = (given.server,) if given.alone else servers
        aside = put_aside(RunLayout.of(config.run, given.results), chosen)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{', '.join(chosen)}: to be measured again; what there was is in {aside}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
