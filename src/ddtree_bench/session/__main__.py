"""Measure one launch of one server: `python -m ddtree_bench.session --spec SPEC --results DIR`.

Exit code 0: outputs are written, failures are rows in them. 1: something failed, another attempt is
allowed, nothing is written. 2: the configuration or this machine is at fault. 130, 143: a signal;
finished cells stay in the store.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from ddtree_bench.errors import BenchError
from ddtree_bench.server.engines import use_gpus
from ddtree_bench.session.interrupts import exit_in_order
from ddtree_bench.session.run import Session, read_spec, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is explained above."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_bench.session", description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help="spec.json of the session")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of all runs")
    parser.add_argument("--attempt", type=int, default=1, help="counts from 1")
    parser.add_argument("--fresh", action="store_true", help="measure stored cells again")
    parser.add_argument("--gpus", help="indices or UUIDs, such as 0,1; default: as inherited")
    given = parser.parse_args(arguments)
    if given.gpus is not None:
        use_gpus(given.gpus)
    logging.basicConfig(format="%(levelname)s: %(message)s")
    exit_in_order()
    try:
        return run(Session(read_spec(given.spec), given.results, given.attempt, given.fresh))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
