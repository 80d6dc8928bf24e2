"""Results of the tools, and what they refuse."""

from __future__ import annotations

import datetime
import math

import pytest

from ddtree_bench.workloads.tools import (
    TOOLS,
    ToolError,
    calculate,
    convert,
    days_between,
    lookup,
    search,
    weekday,
)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12 * 7", "84"),
        ("-(3 + 4) * 6", "-42"),
        ("7 // 2 + 7 % 2", "4"),  # 3 + 1
        ("2 ** 10", "1024"),
        ("1 / 3", "0.333333"),
        ("+0.1 + 0.2", "0.3"),
        ("0", "0"),
        ("1e3", "1000"),
    ],
)
def test_arithmetic(expression: str, value: str) -> None:
    """Values are exact, or rounded to six decimals."""
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "x + 1",
        "__import__('os')",
        "'a' * 9",
        "True + 1",
        "1 / 0",
        "0 ** -1",
        "(-8) ** 0.5",
        "9 ** 65",
        "9 ** 60",
        "(9 ** 20) ** 20",
        "1e999",
        "(" * 150,
        "1j",
    ],
)
def test_everything_else_is_refused(expression: str) -> None:
    """No names, no calls, no strings, no huge or complex numbers."""
    with pytest.raises(ToolError, match="cannot calculate"):
        calculate(expression)


def test_conversion_and_back_is_the_same_value() -> None:
    """Units convert by their factors, and invert."""
    assert convert(42.195, "km", "m") == "42195"
    assert convert(1, "mile", "m") == "1609.344"
    # 3 inches = 3 × 2.54 cm = 7.62 cm
    assert convert(3, "inch", "cm") == "7.62"
    assert convert(float(convert(5, "hour", "day")), "day", "hour") == "4.999992"
    with pytest.raises(ToolError, match="km is a length, kg is a mass"):
        convert(1, "km", "kg")
    with pytest.raises(ToolError, match="known are: mm"):
        convert(1, "parsec", "m")


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e300])
def test_a_number_out_of_bounds_is_an_error_of_the_call(value: float) -> None:
    """JSON of a model may say Infinity, NaN or 1e300; none of them has a result."""
    with pytest.raises(ToolError, match=r"arguments\.value"):
        TOOLS["convert"].check({"value": value, "from": "m", "to": "km"})


def test_dates() -> None:
    """15 March 2024 was a Friday; 2024 is a leap year."""
    assert weekday(datetime.date(2024, 3, 15)) == "Friday"
    assert days_between(datetime.date(2024, 2, 28), datetime.date(2024, 3, 1)) == "2"
    assert days_between(datetime.date(2024, 3, 1), datetime.date(2024, 2, 28)) == "-2"


def test_tables_and_notes() -> None:
    """Entries are found in either case; what is missing is told with what there is."""
    assert lookup("Price", "FIGS") == "9"
    with pytest.raises(ToolError, match="apples, pears"):
        lookup("price", "melons")
    assert search("When do you mend BICYCLES?").startswith("Repairs:")
    with pytest.raises(ToolError, match="nothing found"):
        search("zebra")


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_answers_its_own_example(name: str) -> None:
    """The worked call that models see has a result, and refuses unknown arguments."""
    tool = TOOLS[name]
    assert tool.function(tool.check(tool.example_arguments))
    with pytest.raises(ToolError, match=r"arguments\.extra"):
        tool.check({**tool.example_arguments, "extra": 1})
