"""How figures look: the report's type face and width, colours that all eyes can tell apart."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

TEXT_WIDTH_IN = 160 / 25.4
"""A4 less two margins of 25 mm; figures enter the report unscaled."""
SCREEN_DPI = 130
"""Dots per inch of pictures for the screen."""
_METADATA = {"pdf": ("CreationDate", "Creator", "Producer"), "png": ("Software",)}
"""What matplotlib would write of itself and the time."""

# Okabe & Ito (2008), without the yellow that vanishes on white; grey first, for plain decoding.
_COLOURS = ("#555555", "#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#000000")
_MARKERS = "osDv^<>Ph*X"
_HATCHES = ("", "////", "\\\\\\\\", "....", "xxxx", "++++", "oooo", "----", "||||", "**", "//..")
_FALLBACK = "DejaVu Serif"
_FALLBACK_SCALE = 0.85
"""Makes its letters as large as Computer Modern's."""
_SETTINGS: dict[Any, Any] = {
    "font.family": "serif",
    "font.serif": ["cmr10", _FALLBACK],
    "font.size": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "mathtext.fontset": "cm",
    "axes.formatter.use_mathtext": True,
    "axes.unicode_minus": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "lines.markersize": 4,
    "errorbar.capsize": 2,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,
}
# The other places of Computer Modern Roman hold other signs than their codes say.
_IN_CMR10 = re.compile(r"[A-Za-z0-9 !#$%&'()*+,\-./:;=?@\[\]\n]*")


@dataclass(frozen=True, slots=True)
class Look:
    """A server's colour and marker, the same in every figure."""

    colour: str
    marker: str
    hatch: str


def look(position: int) -> Look:
    """The look of the server at this position of the configuration."""
    of_all = (some[position % len(some)] for some in (_COLOURS, _MARKERS, _HATCHES))
    return Look(*of_all)


@contextmanager
def report_style() -> Iterator[None]:
    """Figures made and saved inside look like the report."""
    subsetting = logging.getLogger("fontTools")
    level = subsetting.level
    subsetting.setLevel(logging.ERROR)  # it warns that Computer Modern's files bear no date
    try:
        with matplotlib.rc_context(_SETTINGS):
            yield
    finally:
        subsetting.setLevel(level)


def new_figure(height_in: float) -> Figure:
    """An empty figure as wide as the report's text."""
    return Figure(figsize=(TEXT_WIDTH_IN, height_in), layout="constrained")


def empty_figure(reason: str) -> Figure:
    """A frame that says why there is nothing in it."""
    figure = new_figure(1.2)
    axes = figure.add_subplot(xticks=[], yticks=[])
    axes.spines[:].set_color("#AAAAAA")
    axes.spines[:].set_visible(True)
    axes.text(0.5, 0.5, plain(reason), ha="center", va="center", transform=axes.transAxes)
    return figure


def plain(text: str) -> str:
    """Text that matplotlib draws as it is: no mathematics, no sign without a glyph."""
    return "".join(
        r"\$" if sign == "$" else sign if _drawable(sign) else f"[U+{ord(sign):04X}]"
        for sign in text
    )


def put_legend_above(axes: Axes, columns: int = 5, *, wide: bool = False) -> None:
    """The legend over the axes, outside of the data; `wide` handles show hatches."""
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, columnspacing=1.2,
        handletextpad=0.5 if wide else 0.3, handlelength=3.0 if wide else 2.0,
        handleheight=1.2 if wide else 0.7,
    )  # fmt: skip


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PDF or PNG, as its name ends; the same figure gives the same bytes."""
    for text in figure.findobj(Text):
        if isinstance(text, Text) and not _suits_cmr10(text.get_text()):
            text.set_fontfamily(_FALLBACK)
            text.set_fontsize(_FALLBACK_SCALE * float(text.get_fontsize()))
    kind = path.suffix.removeprefix(".")
    nothing = dict.fromkeys(_METADATA[kind])
    figure.savefig(path, format=kind, dpi=SCREEN_DPI, metadata=nothing)


def _suits_cmr10(text: str) -> bool:
    without_mathematics = re.sub(r"(?<!\\)\$.*?(?<!\\)\$", "", text).replace(r"\$", "$")
    return _IN_CMR10.fullmatch(without_mathematics) is not None


@cache
def _fallback_codes() -> frozenset[int]:
    return frozenset(FT2Font(font_manager.findfont(_FALLBACK)).get_charmap())


def _drawable(sign: str) -> bool:
    return sign.isprintable() and ord(sign) in _fallback_codes()
