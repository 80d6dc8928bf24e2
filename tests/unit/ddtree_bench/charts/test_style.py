from pathlib import Path

import pytest
from matplotlib.text import Text

from ddtree_bench.charts.style import (
    TEXT_WIDTH_IN,
    empty_figure,
    look,
    new_figure,
    plain,
    report_style,
    save,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tree 15/8", "tree 15/8"),
        ("$x_1$", r"\$x_1\$"),
        ("木", "[U+6728]"),
        ("a\nb\x07", "a[U+000A]b[U+0007]"),
        ("naïve ≥ 1", "naïve ≥ 1"),
    ],
)
def test_titles_are_drawn_as_they_are(text: str, expected: str) -> None:
    """A title never becomes mathematics; a sign without a glyph shows its code point."""
    assert plain(text) == expected


def test_servers_look_different() -> None:
    """Forty servers have forty combinations of colour and marker."""
    assert len({look(position) for position in range(40)}) == 40


def test_same_figure_gives_the_same_bytes(tmp_path: Path) -> None:
    """No date and no path reaches the PDF."""
    with report_style():
        for name in ("a.pdf", "b.pdf"):
            save(empty_figure("nothing | here_yet"), tmp_path / name)
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()


def test_signs_that_computer_modern_misplaces_use_the_other_face(tmp_path: Path) -> None:
    """`_` is another sign in Computer Modern's place for it; letters and digits are not."""
    with report_style():
        figure = new_figure(1)
        odd, even = figure.text(0, 0, "a_b"), figure.text(0, 0.5, "ab 1")
        save(figure, tmp_path / "f.pdf")
        assert odd.get_fontname() == "DejaVu Serif"
        assert even.get_fontname() == "cmr10"
    assert figure.get_figwidth() == TEXT_WIDTH_IN


def test_empty_figure_says_why() -> None:
    """The reason stands in the frame."""
    texts = [text.get_text() for text in empty_figure("not measured").findobj(Text)]
    assert "not measured" in texts
