"""The tools of the agentic workload: pure functions, the same result for the same arguments."""

from __future__ import annotations

import ast
import datetime
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ddtree_bench.config.suggest import nearest

MAX_POWER: Final = 64
MAX_DIGITS: Final = 30

Arithmetic = Callable[[Any, Any], Any]

_BINARY: Final[Mapping[type[ast.operator], Arithmetic]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}

# factor to metre, kilogram or second
_UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "mm": ("length", 0.001),
    "cm": ("length", 0.01),
    "m": ("length", 1.0),
    "km": ("length", 1000.0),
    "inch": ("length", 0.0254),
    "foot": ("length", 0.3048),
    "mile": ("length", 1609.344),
    "g": ("mass", 0.001),
    "kg": ("mass", 1.0),
    "pound": ("mass", 0.45359237),
    "second": ("time", 1.0),
    "minute": ("time", 60.0),
    "hour": ("time", 3600.0),
    "day": ("time", 86400.0),
}

_TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "stock": {"apples": "120", "pears": "45", "plums": "0", "lemons": "310", "figs": "18"},
    "price": {"apples": "2", "pears": "3", "plums": "4", "lemons": "1", "figs": "9"},
    "capital": {
        "france": "Paris",
        "japan": "Tokyo",
        "kenya": "Nairobi",
        "peru": "Lima",
        "norway": "Oslo",
    },
    "opening": {"library": "09:00", "museum": "10:00", "pool": "07:30", "market": "06:00"},
}

_NOTES: Final = (
    "Returns: goods may be sent back within 30 days with the receipt.",
    "Delivery: parcels below 5 kg take 3 days, heavier ones take 6 days.",
    "Membership: members pay 40 a year and get a tenth off every order.",
    "Repairs: the workshop mends bicycles on Tuesday and Friday.",
    "Parking: the yard behind the shop holds 14 cars and closes at 20:00.",
)


class ToolError(Exception):
    """A call that the tool cannot answer; the model is told why."""


class _Arguments(BaseModel):
    """What the model wrote as arguments; refuses others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Calculate(_Arguments):
    expression: str = Field(max_length=200)


class _Convert(_Arguments):
    value: float = Field(ge=-1e15, le=1e15, allow_inf_nan=False)
    source: str = Field(alias="from")
    target: str = Field(alias="to")


class _Date(_Arguments):
    date: datetime.date


class _Dates(_Arguments):
    start: datetime.date
    end: datetime.date


class _Lookup(_Arguments):
    table: str
    key: str


class _Search(_Arguments):
    query: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call, and how it is shown to the model."""

    description: str
    example_task: str
    example_arguments: Mapping[str, Any]
    arguments: type[_Arguments]
    function: Callable[[Any], str]
    """Takes what `check` returns; raises ToolError where there is no result."""

    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return self.arguments.model_json_schema(by_alias=True)

    def check(self, arguments: Mapping[str, Any]) -> _Arguments:
        """The arguments with their types; raises ToolError naming the first that does not fit."""
        try:
            return self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            fault = error.errors()[0]
            key = ".".join(str(part) for part in fault["loc"])
            raise ToolError(f"arguments.{key}: {fault['msg']}") from error


def calculate(expression: str) -> str:
    """The value of an arithmetic expression of numbers, `+ - * / // % **` and brackets.

    >>> calculate("(3 + 4) * 6")
    '42'

    Raises ToolError for anything else, for a division by zero, and for huge numbers.
    """
    try:
        return _number(_value(ast.parse(expression.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ToolError(f"cannot calculate this: {error}") from error


def _value(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _BINARY:
            first, second = _value(left), _value(right)
            if isinstance(operation, ast.Pow) and abs(second) > MAX_POWER:
                raise ValueError(f"powers above {MAX_POWER}")
            return _bounded(_BINARY[type(operation)](first, second))
    raise ValueError("only numbers, + - * / // % ** and brackets")


def _bounded(number: object) -> int | float:
    if not isinstance(number, int | float):
        raise ValueError("the result is no real number")
    if not abs(number) < 10**MAX_DIGITS:
        raise ValueError(f"a number with more than {MAX_DIGITS} digits")
    return number


def _number(value: float) -> str:
    """A number as text, rounded to six decimals, without a trailing `.0`."""
    rounded = round(value, 6)
    return str(int(rounded)) if rounded == int(rounded) else str(rounded)


def convert(value: float, source: str, target: str) -> str:
    """The value in another unit of the same quantity.

    >>> convert(3, "km", "m")
    '3000'

    Raises ToolError for an unknown unit or two quantities.
    """
    for unit in (source, target):
        if unit not in _UNITS:
            raise ToolError(f"unknown unit {unit!r}; known are: {', '.join(_UNITS)}")
    (kind, factor), (other_kind, other_factor) = _UNITS[source], _UNITS[target]
    if kind != other_kind:
        raise ToolError(f"{source} is a {kind}, {target} is a {other_kind}")
    return _number(value * factor / other_factor)


def weekday(date: datetime.date) -> str:
    """The English name of a date's day of the week."""
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    return names[date.weekday()]


def days_between(start: datetime.date, end: datetime.date) -> str:
    """Days from start to end, negative if the end comes first."""
    return str((end - start).days)


def lookup(table: str, key: str) -> str:
    """The entry of a small fixed table; raises ToolError for one that is not there."""
    rows = _TABLES.get(table.lower())
    if rows is None:
        raise ToolError(f"no table {table!r}; there are: {', '.join(_TABLES)}")
    entry = rows.get(key.lower())
    if entry is None:
        raise ToolError(f"no {key!r} in {table}; there are: {', '.join(rows)}")
    return entry


def search(query: str) -> str:
    """The shop note that shares most words with the query, the first of equals.

    Raises ToolError if none shares a word.
    """
    wanted = _words(query)
    best = max(_NOTES, key=lambda note: len(wanted & _words(note)))
    if not wanted & _words(best):
        raise ToolError("nothing found; try other words")
    return best


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


TOOLS: Final[Mapping[str, Tool]] = {
    "calculator": Tool(
        "evaluates an arithmetic expression",
        "What is 12 * 7?",
        {"expression": "12 * 7"},
        _Calculate,
        lambda arguments: calculate(arguments.expression),
    ),
    "convert": Tool(
        f"converts between units ({', '.join(_UNITS)})",
        "How many minutes are 2 hours?",
        {"value": 2, "from": "hour", "to": "minute"},
        _Convert,
        lambda arguments: convert(arguments.value, arguments.source, arguments.target),
    ),
    "weekday": Tool(
        "tells the day of the week of a date",
        "Which day of the week is 2024-03-15?",
        {"date": "2024-03-15"},
        _Date,
        lambda arguments: weekday(arguments.date),
    ),
    "days_between": Tool(
        "counts the days from one date to another",
        "How many days are there from 2024-01-01 to 2024-01-31?",
        {"start": "2024-01-01", "end": "2024-01-31"},
        _Dates,
        lambda arguments: days_between(arguments.start, arguments.end),
    ),
    "lookup": Tool(
        f"reads an entry of a table ({', '.join(_TABLES)})",
        "What is the price of figs?",
        {"table": "price", "key": "figs"},
        _Lookup,
        lambda arguments: lookup(arguments.table, arguments.key),
    ),
    "search": Tool(
        "finds the note of the shop that fits some words",
        "Which note is about bicycles?",
        {"query": "bicycles"},
        _Search,
        lambda arguments: search(arguments.query),
    ),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a model's call of a tool came to."""

    well_formed: bool
    """Whether the tool was offered and its arguments fit; it may still have no result."""
    detail: str
    result: str | None
    """None: there is none, and `error` says why."""
    error: str | None = None


def call_tool(name: str, arguments: Mapping[str, Any], offered: Sequence[str]) -> Outcome:
    """Call one of the offered tools as a model asked for it."""
    if name not in offered:
        what = f'there is no tool "{name}"{nearest(name, offered)}'
        return Outcome(False, what, None, what)
    try:
        checked = TOOLS[name].check(arguments)
    except ToolError as error:
        return Outcome(False, str(error), None, str(error))
    try:
        return Outcome(True, f"call of {name}", TOOLS[name].function(checked))
    except ToolError as error:
        return Outcome(True, f"call of {name}", None, str(error))
