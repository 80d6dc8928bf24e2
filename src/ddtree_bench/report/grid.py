"""Tables of the paper as data; the template's macro `grid` sets them."""

from __future__ import annotations

from dataclasses import dataclass

from ddtree_bench.columns import NOT_MEASURED, Column
from ddtree_bench.report.tex import Tex, breakable, escape

INTERVAL = r"r@{\ }r@{\,}r"
"""Alignment of the three cells that `interval` makes."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Text over `span` columns, aligned by TeX's letter."""

    text: Tex
    span: int = 1
    align: str = "l"

    @property
    def tex(self) -> Tex:
        """The cell as TeX."""
        if self.span == 1:
            return self.text
        return Tex(rf"\multicolumn{{{self.span}}}{{{self.align}}}{{{self.text}}}")


Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: TeX's alignment, head rows, rows, caption and label.

    `rows` empty: the table says so in one line.

    Raises:
        ValueError: a row is not as wide as the last head row.
    """

    label: str
    caption: Tex
    align: str
    heads: tuple[Row, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        for row in (*self.heads, *self.rows):
            if _width(row) != self.width:
                raise ValueError(f"{self.label}: {_width(row)} columns, not {self.width}: {row}")

    @property
    def width(self) -> int:
        """Columns that a row fills."""
        return _width(self.heads[-1])


def text(value: object) -> Cell:
    """A cell of text; long words may break; a dash where there is none."""
    return Cell(breakable(value) if str(value) else Tex(escape(NOT_MEASURED)))


def head(value: str, span: int = 1) -> Cell:
    """A head over its columns."""
    return Cell(escape(value), span, "c")


def number(column: Column, value: object) -> Cell:
    """A number with the column's unit and decimals."""
    return Cell(escape(column.show(value)))


def interval(column: Column, value: object, low: object, high: object) -> Row:
    """Three cells: the value and the two ends of its interval."""
    if column.show(low) == NOT_MEASURED:
        return number(column, value), Cell(Tex("")), Cell(Tex(""))
    ends = column.show(low), column.show(high)
    return number(column, value), Cell(escape(f"[{ends[0]},")), Cell(escape(f"{ends[1]}]"))


def group(value: str, width: int, align: str = "l") -> Row:
    """A row that names the rows below it."""
    return (Cell(Tex(rf"\textit{{{escape(value)}}}"), width, align),)


def failed(reason: str, span: int) -> Cell:
    """Stands where numbers would, had the measurement ended well."""
    return Cell(Tex(rf"\failed{{{escape(reason)}}}"), span)


def _width(row: Row) -> int:
    return sum(cell.span for cell in row)
