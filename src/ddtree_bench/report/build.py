"""Fill the template and compile it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ddtree_bench.charts.data import read_tables
from ddtree_bench.charts.draw import FIGURES
from ddtree_bench.config import Config
from ddtree_bench.errors import BenchError
from ddtree_bench.hashing import file_sha256
from ddtree_bench.report.content import content, newest_measurement
from ddtree_bench.report.latex import compile_pdf
from ddtree_bench.report.tex import environment

POWER = Path(__file__).resolve().parents[3] / "benchmarks" / "power.json"
"""What `benchmarks/power.py` found out about the verdicts."""
TEMPLATES = Path(__file__).resolve().parents[3] / "report" / "template"


def build_report(
    tables_folder: Path, figures_folder: Path, config: Config, out_tex: Path, out_pdf: Path
) -> None:
    """Write the report's TeX file, with its figures beside it, and compile it to a PDF.

    The folder of `out_tex` holds all that the TeX file needs; same inputs give the same bytes.

    Raises:
        BenchError: a table or figure is missing, or TeX found a fault.
        MachineError: this machine has no TeX.
    """
    tables = read_tables(tables_folder)
    made = content(tables, config, _hashes(tables_folder), _power())
    out_tex.parent.mkdir(parents=True, exist_ok=True)
    out_tex.write_text(
        environment(TEMPLATES).get_template("report.tex.j2").render(made), encoding="utf-8"
    )
    _bring_figures(figures_folder, out_tex.parent / "figures")
    pdf = compile_pdf(out_tex, epoch=newest_measurement(tables))
    out_pdf.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(pdf, out_pdf)


def _power() -> dict[str, Any] | None:
    figures: dict[str, Any] | None = None
    if POWER.exists():
        figures = json.loads(POWER.read_text(encoding="utf-8"))
    return figures


def _hashes(tables_folder: Path) -> dict[str, str]:
    return {path.name: file_sha256(path) for path in sorted(tables_folder.glob("*.csv"))}


def _bring_figures(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in FIGURES:
        figure = source / f"{name}.pdf"
        if not figure.exists():
            raise BenchError(
                f"figure {name} is missing", where=str(figure), remedy="run the rule `charts`"
            )
        shutil.copyfile(figure, target / figure.name)
