"""Final answers in LaTeX: the same in another look, or another answer."""

from __future__ import annotations

import pytest

from ddtree_bench.workloads.formulas import boxed, same_answer


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"So $\boxed{\frac{\sqrt{3}}{2}}$.", r"\frac{\sqrt{3}}{2}"),
        (r"First \boxed{1}, no: \boxed{2}", "2"),
        (r"\fbox{7}", "7"),
        (r"\boxed{1 + {2}", None),
        ("42", None),
        (r"\boxed", None),
    ],
)
def test_the_last_box_is_the_answer(text: str, inside: str | None) -> None:
    """With braces inside it; one that is never closed is none."""
    assert boxed(text) == inside


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("0.5", r"\frac{1}{2}"),
        (r"\dfrac12", "1/2"),
        (r"-\frac{6}{4}", "-1.5"),
        (".5", "0.50"),
        ("10,080", "10080"),
        (r"10,\!080", "10080"),
        (r"$18.90$", r"\$18.90"),
        (r"120^\circ", "120"),
        (r"50\%", "50"),
        (r"864\mbox{ inches}^2", "864"),
        (r"5 \text{ cm}", "5"),
        (r"x = 3", "3"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})"),
        (r"\text{Evelyn}", "Evelyn"),
        (r"\sqrt3", r"\sqrt{3}"),
        ("p - q.", "p-q"),
    ],
)
def test_looks_do_not_matter(said: str, expected: str) -> None:
    """Numbers are compared by value, the rest as text without its typesetting; both ways round."""
    assert same_answer(said, expected)
    assert same_answer(expected, said)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("2", "3"),
        ("-2", "2"),
        ("1/0", "0"),
        ("12", "1,2"),
        (r"\frac{1}{2}", r"\frac{2}{1}"),
        ("P", "p"),
        (r"\leftarrow", "arrow"),
        ("(1,2)", "(2,1)"),
        ("(x+1)^2", "x^2+2x+1"),
        ("", "0"),
        ("9" * 10_000, "9"),
    ],
)
def test_other_answers_differ(said: str, expected: str) -> None:
    """Also those that are equal only by algebra: nothing here does algebra."""
    assert not same_answer(said, expected)
