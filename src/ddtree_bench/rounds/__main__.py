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
from pathlib import Path

from ddtree_bench.config import load_config
from ddtree_bench.errors import BenchError
from ddtree_bench.rounds.run import RoundsRun, run_rounds
from ddtree_bench.server.deadline import Deadline
from ddtree_bench.session.interrupts import exit_in_order


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is explained above."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_bench.rounds", description=__doc__)
    parser.add_argument("config", type=Path, help="configuration of the run")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of all runs")
    parser.add_argument("--only", nargs="+", default=[], metavar="SERVER", help="default: all")
    parser.add_argument(
        "--deadline-s", type=float, default=math.inf, help="start nothing that would end later"
    )
    parser.add_argument("--session-s", type=float, help="expected of each server's first launch")
    given = parser.parse_args(arguments)
    deadline = Deadline.after(given.deadline_s)
    exit_in_order()
    try:
        config = load_config(given.config)
        only = tuple(given.only)
        return run_rounds(RoundsRun(config, given.results, only, given.session_s, deadline))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
