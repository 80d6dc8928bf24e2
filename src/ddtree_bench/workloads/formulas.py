r"""Whether two final answers in LaTeX are the same, as far as text and numbers tell.

Numbers are compared by value: `0.5`, `1/2` and `\frac{1}{2}` are one. Everything else is compared
as text without spacing, sizes of brackets, dollar and degree signs, and units behind a number. So
what is equal only by algebra, such as another order of a list or an expanded product, counts as
another answer: too strict, but in the same way for every server.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_BOXED: Final = ("\\boxed{", "\\fbox{")
_DROPPED: Final = re.compile(
    r"\\left(?![a-z])|\\right(?![a-z])|\\[!,;: ]|\\?\$|\\?%|\^\{?\\circ\}?|\s"
)
"""What changes the look alone."""
_THOUSANDS: Final = re.compile(r"^-?\d{1,3}(?:,\d{3})+(?:\.\d+)?$")
_TEXT: Final = re.compile(r"\\(?:text|textbf|mbox|mathrm)\{([^{}]*)\}")
_UNIT: Final = re.compile(r"(?<=[\d}])\\(?:text|mbox|mathrm)\{[^{}]*\}(?:\^\{?\d\}?)?$")
_SHORT_FRACTION: Final = re.compile(r"\\frac(\d)(\d)")
_SHORT_ROOT: Final = re.compile(r"\\sqrt(\d)")
_NAMED: Final = re.compile(r"^[A-Za-z]=")
_FRACTION: Final = re.compile(r"^(-?)(?:\\frac\{(-?\d+)\}\{(\d+)\}|(\d+)/(\d+))$")
_LONGEST: Final = 100
_DECIMAL: Final = re.compile(r"^-?(?:\d+\.?\d*|\.\d+)$")


def boxed(text: str) -> str | None:
    r"""What the last `\boxed{}` of a text holds; None where there is none that is closed.

    >>> boxed(r"so it is $\boxed{\frac{1}{2}}$.")
    '\\frac{1}{2}'
    """
    start = max(text.rfind(box) for box in _BOXED)
    if start < 0:
        return None
    start = text.index("{", start) + 1
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return None


def same_answer(said: str, expected: str) -> bool:
    r"""Whether two answers are the same number or, but for their look, the same text.

    >>> same_answer(r"x = \dfrac12", "0.5")
    True
    """
    first, second = _plain(said), _plain(expected)
    if first == second:
        return True
    values = _value(first), _value(second)
    return values[0] is not None and values[0] == values[1]


def _plain(answer: str) -> str:
    text = answer.strip().rstrip(".").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    text = _UNIT.sub("", _DROPPED.sub("", text))
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", _TEXT.sub(r"\1", text))
    text = _NAMED.sub("", _SHORT_ROOT.sub(r"\\sqrt{\1}", text))
    return text.replace(",", "") if _THOUSANDS.match(text) else text


def _value(text: str) -> Fraction | None:
    """The number that a text is; None if it is none, or so long that it is a loop of digits."""
    if len(text) > _LONGEST:
        return None
    if _DECIMAL.match(text):
        return Fraction(text)
    found = _FRACTION.match(text)
    if found is None:
        return None
    sign, *numbers = found.groups()
    over, under = (int(number) for number in numbers if number is not None)
    return Fraction(-over if sign else over, under) if under else None
