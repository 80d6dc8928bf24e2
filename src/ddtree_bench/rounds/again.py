"""Measure a server once more: `python -m ddtree_bench.rounds.again CONFIG SERVER`.

Two servers are compared in rounds in which both were measured side by side. So what was measured of
the server, of its opponents, of theirs and so on is put aside, and the next run measures all of it
in common rounds: every pair keeps its verdict. As all are compared with the baseline, that is the
whole run.

`--opponents` puts aside the server and those that it is compared with: less to measure, but their
pairs with the others stay undecided. `--alone` puts aside nothing but the server, which then has no
round in common with anybody. Both print the pairs that lose their rounds.

Nothing is lost: `results/RUN/replaced/` keeps what was put aside.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from ddtree_bench.config import Config
from ddtree_bench.config.suggest import nearest
from ddtree_bench.errors import BenchError, ConfigError, Fault
from ddtree_bench.layout import RunLayout
from ddtree_bench.rounds.arguments import config_of, require_same_sample, run_parser
from ddtree_bench.session.store import CellStore, read_cells
from ddtree_bench.tables.pairs import Pair, pairs_of


def with_opponents(config: Config, server: str) -> tuple[str, ...]:
    """The server and those that it is compared with, in the configuration's order.

    Raises ConfigError if there is no such server.
    """
    _require_server(config, server)
    return _in_order(config, _joined({server}, config))


def in_common_rounds(config: Config, server: str) -> tuple[str, ...]:
    """The server, its opponents, theirs and so on: who must be measured in the same rounds.

    Raises ConfigError if there is no such server.
    """
    _require_server(config, server)
    wanted = {server}
    while (more := _joined(wanted, config)) != wanted:
        wanted = more
    return _in_order(config, wanted)


def losing(config: Config, chosen: Collection[str]) -> list[Pair]:
    """Pairs that have no round in common any more once these servers are measured again."""
    return [p for p in pairs_of(config) if (p.candidate in chosen) != (p.reference in chosen)]


def _require_server(config: Config, server: str) -> None:
    if server not in config.servers:
        what = f"there is no server `{server}`{nearest(server, config.servers)}"
        raise ConfigError([Fault("SERVER", None, "", what)])


def _joined(servers: set[str], config: Config) -> set[str]:
    """The servers and all that one of them is compared with."""
    pairs = [set(pair.servers) for pair in pairs_of(config)]
    return servers.union(*(pair for pair in pairs if pair & servers))


def _in_order(config: Config, wanted: Collection[str]) -> tuple[str, ...]:
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
    parser = run_parser("again", __doc__)
    parser.add_argument("server", help="key under `servers`")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--opponents", action="store_true", help="it and its opponents only")
    which.add_argument("--alone", action="store_true", help="it only")
    given = parser.parse_args(arguments)
    try:
        config = config_of(given)
        require_same_sample(config, given.results)
        chosen = _chosen(config, given)
        aside = put_aside(RunLayout.of(config.run, given.results), chosen)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{', '.join(chosen)}: to be measured again; what there was is in {aside}")
    for line in _warning(losing(config, chosen), given):
        print(line)
    return 0


def _chosen(config: Config, given: argparse.Namespace) -> tuple[str, ...]:
    if given.alone:
        _require_server(config, given.server)
        return (given.server,)
    choose = with_opponents if given.opponents else in_common_rounds
    return choose(config, given.server)


def _warning(lost: Sequence[Pair], given: argparse.Namespace) -> Iterator[str]:
    """What no verdict will be reached on, and how to get it back."""
    if not lost:
        return
    yield "These pairs have no round in common any more, and their verdicts will be `undecided`:"
    yield from dict.fromkeys(f"  {pair.candidate} and {pair.reference}" for pair in lost)
    sample = "" if given.sample is None else f" --sample {given.sample}"
    command = f"python -m ddtree_bench.rounds.again {given.config} {given.server}{sample}"
    yield f"`{command}` puts all aside, so that every pair is measured in common rounds."


if __name__ == "__main__":
    sys.exit(main())
