from pathlib import Path

import jinja2
import pytest

from ddtree_bench.report.latex import compile_pdf
from ddtree_bench.report.tex import Tex, breakable, environment, escape, lines

HOSTILE = (
    r"\input{/etc/passwd}",
    r"^^5cinput{/etc/passwd}",
    r"\immediate\write18{touch ran}",
    r"\end{document}",
    r"}}\csname end\endcsname{{",
    "100 % comment\nnext line",
    "$x_1^2$ & #1 ~ \\ | < > ' \" `",
    "((* for x in y *)) (((x)))",
    "\x00\x07\x1b[31m\u202e\u200b\ufeff",
)


def page(body: str) -> str:
    return (
        r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{lmodern}"
        r"\begin{document}" + body + r"\end{document}"
    )


def pdf_text(pdf: Path) -> str:
    from pypdf import PdfReader

    return "\n".join(sheet.extract_text() for sheet in PdfReader(pdf).pages)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & 50%", r"a\_b \& 50\%"),
        ("{x}\\y", r"\{x\}\textbackslash{}y"),
        ("--flag", "-{}-{}flag"),
        ("two\nlines", "two lines"),
        ("3 × 4 ≤ 12", r"3 × 4 \ensuremath{\leq} 12"),
        ("木", r"\fbox{\tiny U+6728}"),
        ("\x07", r"\fbox{\tiny U+0007}"),
        ("e\u0301", "é"),
    ],
)
def test_text_is_escaped(text: str, expected: str) -> None:
    """Each character that TeX would act on, or lacks, becomes something that prints."""
    assert escape(text) == expected


def test_an_interval_stays_on_one_line() -> None:
    """A line never ends within its brackets; other lists may be broken."""
    assert escape("1.19 [1.02, 1.37], 40") == "1.19 [1.02,{}~1.37],{} 40"
    assert escape("[a, b]") == "[a,{} b]"


def test_tex_is_not_escaped_twice() -> None:
    """What is TeX already stays as it is; TeX joined with text counts as text again."""
    bold = Tex(r"\textbf{x}")
    assert escape(bold) == r"\textbf{x}"
    assert escape(escape("50%")) == r"50\%"
    assert not isinstance(bold + "%", Tex)


def test_long_words_can_be_broken() -> None:
    """A path may break after its separators, a hash after every twelve characters."""
    assert breakable("see /models/SmolLM2") == r"see /\allowbreak{}models/\allowbreak{}SmolLM2"
    assert breakable(24 * "f") == rf"{12 * 'f'}\allowbreak{{}}{12 * 'f'}"
    assert breakable("configurations") == "configurations"
    assert breakable("--model-path=x") == (
        r"-{}-{}\allowbreak{}model-{}\allowbreak{}path=\allowbreak{}x"
    )
    assert breakable("short a/b words (c)") == "short a/b words (c)"


def test_log_lines_stay_lines() -> None:
    """Every kind of line end separates; blank lines vanish."""
    assert lines("one\r\n\ntwo\rthree\n") == "one\\newline\ntwo\\newline\nthree"


def test_template_escapes_by_default(tmp_path: Path) -> None:
    """An expression is escaped, the template's own text and a `Tex` are not."""
    (tmp_path / "t").write_text(r"\a{((( x )))} ((( y ))) ((= gone =))((* if x *))%((* endif *))")
    made = environment(tmp_path).get_template("t").render(x="50%", y=Tex(r"\b"))
    assert made == r"\a{50\%} \b %"


def test_unknown_name_in_template_is_an_error(tmp_path: Path) -> None:
    """A misspelt name never becomes an empty cell."""
    (tmp_path / "t").write_text("((( misspelt )))")
    with pytest.raises(jinja2.UndefinedError, match="misspelt"):
        environment(tmp_path).get_template("t").render()


def test_hostile_text_is_printed_and_never_run(tmp_path: Path) -> None:
    """Model output reaches the page as text: nothing is included, started or ended by it."""
    source = tmp_path / "hostile.tex"
    source.write_text(page(r"\par ".join([*map(escape, HOSTILE), *map(breakable, HOSTILE), "END"])))
    words = pdf_text(compile_pdf(source, epoch=0)).replace("\n", "").replace(" ", "")
    assert "END" in words
    assert r"\input{/etc/passwd}" in words
    assert "root:" not in words
    assert "U+202E" in words
    assert not (tmp_path / "ran").exists()


def test_every_printable_character_compiles(tmp_path: Path) -> None:
    """All of U+0001 to U+2FFF compiles, in roman and in typewriter."""
    body = "\n".join(escape(chr(code)) for code in range(1, 0x3000))
    source = tmp_path / "all.tex"
    source.write_text(page(rf"\sloppy {body} \par \ttfamily {body}"), encoding="utf-8")
    assert compile_pdf(source, epoch=0).exists()
    assert "Missing character" not in source.with_suffix(".log").read_text(errors="replace")
