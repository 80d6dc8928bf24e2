"""Text into TeX: whatever the text says, TeX prints it and never runs it."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import jinja2

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "#": r"\#",
    "$": r"\$",
    "%": r"\%",
    "&": r"\&",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": "-{}",  # two in a row would become a dash: --flag
    ",": ",{}",  # two in a row would become a low quotation mark
    "\n": " ",
    "\r": " ",
    "\t": " ",
    "\u00a0": "~",
}
_MATH = {
    "−": "-",
    "≤": r"\leq",
    "≥": r"\geq",
    "≠": r"\neq",
    "≈": r"\approx",
    "∼": r"\sim",
    "→": r"\rightarrow",
    "←": r"\leftarrow",
    "↔": r"\leftrightarrow",
    "⇒": r"\Rightarrow",
    "∞": r"\infty",
    "√": r"\surd",
    "∑": r"\sum",
    "∏": r"\prod",
    "∈": r"\in",
    "α": r"\alpha",
    "β": r"\beta",
    "γ": r"\gamma",
    "δ": r"\delta",
    "ε": r"\varepsilon",
    "θ": r"\theta",
    "λ": r"\lambda",
    "μ": r"\mu",
    "π": r"\pi",
    "σ": r"\sigma",
    "τ": r"\tau",
    "φ": r"\varphi",
    "ω": r"\omega",
    "Δ": r"\Delta",
    "Σ": r"\Sigma",
    "Ω": r"\Omega",
}
# What T1 and TS1 Latin Modern print beyond ASCII, through LaTeX's own UTF-8 input.
_LATIN_1 = "".join(map(chr, range(0xA1, 0x100))).replace("\u00ad", "")
_LATIN_A = "ĂăĄąĆćČčĎďĐđĘęĚěĞğİıĹĺĽľŁłŃńŇňŊŋŐőŒœŔŕŘřŚśŠšŞşŤťŢţŮůŰűŸŹźŻżŽž"
_SIGNS = "–—‘’‚“”„†‡•…‰‹›€"
_PRINTED = frozenset(map(chr, range(0x20, 0x7F))) | frozenset(_LATIN_1 + _LATIN_A + _SIGNS)

_LONG_WORD = re.compile(r"\S{13,}")
# after signs but not after opening brackets, unless there are too many of them; within letters and
# digits only where no word is so long
_BREAK_AFTER = re.compile(r"[^\w\s(\[{]{1,12}|[(\[{]{12}|_|[^\W_]{12}(?=[^\W_]{12})")
_BREAK = r"\allowbreak{}"
_INTERVAL = re.compile(r"(\[[\d.-]+,) (?=[\d.-]+\])")


class Tex(str):
    """Text that is TeX already and is printed as it stands."""

    __slots__ = ()


def escape(value: object) -> Tex:
    """TeX that prints the value's text; a `Tex` is returned as it is.

    Line ends and tabs become spaces; an interval such as [1.02, 1.37] stays on one line. A
    character that the fonts lack becomes a small box that names its code point.
    """
    if isinstance(value, Tex):
        return value
    text = unicodedata.normalize("NFC", str(value))
    return Tex("".join(map(_character, _INTERVAL.sub("\\1\u00a0", text))))


def breakable(value: object) -> Tex:
    """Like `escape`, for paths, commands and log lines: long words may be broken."""
    text = unicodedata.normalize("NFC", str(value))
    pieces, start = [], 0
    for word in _LONG_WORD.finditer(text):
        for place in _BREAK_AFTER.finditer(text, word.start(), word.end()):
            pieces.append(escape(text[start : place.end()]))
            start = place.end()
    pieces.append(escape(text[start:]))
    return Tex(_BREAK.join(piece for piece in pieces if piece))


def lines(text: str) -> Tex:
    """The lines of a log as breakable TeX lines, blank ones left out."""
    kept = (line.rstrip() for line in re.split(r"\r\n|\r|\n", text))
    return Tex("\\newline\n".join(breakable(line) for line in kept if line))


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character in _MATH:
        return rf"\ensuremath{{{_MATH[character]}}}"
    if character in _PRINTED:
        return character
    return rf"\fbox{{\tiny U+{ord(character):04X}}}"


def environment(folder: Path) -> jinja2.Environment:
    r"""Jinja for TeX templates: `((* statement *))`, `((( expression )))`, `((= comment =))`.

    Every expression is escaped unless it is a `Tex`; an unknown name is an error.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        block_start_string="((*",
        block_end_string="*))",
        variable_start_string="(((",
        variable_end_string=")))",
        comment_start_string="((=",
        comment_end_string="=))",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # that would escape for HTML; `finalize` escapes for TeX
        finalize=escape,
    )
    made.filters["breakable"] = breakable
    made.filters["lines"] = lines
    made.filters["tex"] = Tex
    return made
