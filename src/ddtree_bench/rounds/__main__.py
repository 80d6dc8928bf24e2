"""All sessions of a run without Snakemake: `python -m ddtree_bench.rounds CONFIG --results DIR`.

For a node that has GPUs and no Snakemake (docs/gpu-node.md). Sessions run in the order of the
schedule, a process each; one that fails is tried again as often as the configuration says, and the
others go on. A session whose outputs exist is not run again.

Exit code 0: all sessions asked for have their outputs. 1: some have none, for want of time or
because this machine lacks something. 2: the configuration is at fault. 130, 143: a signal.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from ddtree_bench.config import Config
from ddtree_bench.errors import BenchError, ConfigError, Fault
from ddtree_bench.rounds.arguments import add_run, config_of
from ddtree_bench.rounds.run import RoundsRun, run_rounds
from ddtree_bench.server.deadline import Deadline
from ddtree_bench.server.engines import GPUS, use_gpus
from ddtree_bench.session.interrupts import exit_in_order


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is explained above."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_bench.rounds", description=__doc__)
    add_run(parser)
    parser.add_argument("--only", nargs="+", default=[], metavar="SERVER", help="default: all")
    parser.add_argument(
        "--deadline-s", type=float, default=math.inf, help="start nothing that would end later"
    )
    parser.add_argument("--session-s", type=float, help="expected of each server's first launch")
    parser.add_argument("--gpus", help="indices or UUIDs, such as 0,1; default: as inherited")
    given = parser.parse_args(arguments)
    deadline = Deadline.after(given.deadline_s)
    if given.gpus is not None:
        use_gpus(given.gpus)
    exit_in_order()
    try:
        config = config_of(given)
        _require_free_choice(config, given.gpus)
        only = tuple(given.only)
        return run_rounds(RoundsRun(config, given.results, only, given.session_s, deadline))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2


def _require_free_choice(config: Config, gpus: str | None) -> None:
    """Raise ConfigError if a server names its GPUs itself, and others are asked for."""
    named = [name for name, server in config.servers.items() if GPUS in server.env]
    if gpus is not None and named:
        what = f"it names the GPUs, and so does --gpus {gpus}; leave one of the two out"
        raise ConfigError([Fault("servers", None, f"{name}.env.{GPUS}", what) for name in named])


if __name__ == "__main__":
    sys.exit(main())
