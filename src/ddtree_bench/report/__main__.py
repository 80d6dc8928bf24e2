"""The report of sessions that lie in any folder, without Snakemake: no server is started.

`python -m ddtree_bench.report CONFIG SESSIONS` reads `SESSIONS/{server}/launch-{n}/`, writes tables
and figures below `results/{run}/` and the paper to `report/{run}.pdf`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ddtree_bench.charts.draw import draw_figures
from ddtree_bench.config import load_config
from ddtree_bench.errors import BenchError, MachineError
from ddtree_bench.layout import RunLayout
from ddtree_bench.report.build import build_report
from ddtree_bench.tables.build import build_tables
from ddtree_bench.tables.write import write_tables


def report_of(config_path: Path, sessions: Path) -> Path:
    """Make the report of the sessions in a folder; returns the PDF's path.

    Raises:
        BenchError: the configuration is faulty, the folder holds no session, or TeX failed.
    """
    config = load_config(config_path)
    folders = sorted(path.parent for path in sessions.glob("*/launch-*/launch.json"))
    if not folders:
        raise MachineError(
            "there are no sessions",
            where=str(sessions),
            remedy="name the folder that holds {server}/launch-{n}/launch.json",
        )
    layout = RunLayout.of(config.run)
    write_tables(build_tables(folders, config), layout.tables)
    draw_figures(layout.tables, layout.figures, config)
    pdf = Path(f"report/{config.run}.pdf")
    tex = Path(f"report/build/{config.run}/{config.run}.tex")
    build_report(layout.tables, layout.figures, config, tex, pdf)
    return pdf


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: 0, or 2 with the reason."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_bench.report", description=__doc__)
    parser.add_argument("config", type=Path, help="the configuration that was measured")
    parser.add_argument("sessions", type=Path, help="folder of its sessions")
    given = parser.parse_args(arguments)
    try:
        print(report_of(given.config, given.sessions))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
