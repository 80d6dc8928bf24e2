from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import BarContainer, Container
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from synthetic_tables import synthetic_config, tables_of, write_tables

from ddtree_bench.charts import figures
from ddtree_bench.charts.data import Tables, read_tables
from ddtree_bench.charts.draw import FIGURES
from ddtree_bench.charts.style import TEXT_WIDTH_IN
from ddtree_bench.config import CLASSES

CONFIG = synthetic_config()


@pytest.fixture
def full(tmp_path: Path) -> Tables:
    return read_tables(write_tables(tables_of("full", CONFIG), tmp_path))


@pytest.fixture
def empty(tmp_path: Path) -> Tables:
    return read_tables(write_tables(tables_of("empty", CONFIG), tmp_path))


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def places(line: Line2D) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def points(container: Container) -> tuple[np.ndarray, np.ndarray]:
    drawn: Any = container  # of errorbar, whose first artist is the line of its points
    return places(drawn.lines[0])


@pytest.mark.parametrize("name", FIGURES)
def test_figure_without_data_says_why(name: str, empty: Tables) -> None:
    """No rows give a frame with a reason, no axes of nothing."""
    drawing = FIGURES[name](empty, CONFIG)
    assert drawing.data.empty
    assert len(words(drawing.figure).split()) >= 5


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_as_wide_as_the_text(name: str, full: Tables) -> None:
    """Figures enter the report unscaled."""
    assert FIGURES[name](full, CONFIG).figure.get_figwidth() == TEXT_WIDTH_IN


def test_throughput_draws_the_table(full: Tables) -> None:
    """Each server's points are its speeds; a class without one gets a cross at zero."""
    axes = figures.throughput(full, CONFIG).figure.axes[0]
    table = full["classes"].set_index(["server", "workload_class"])["tok_per_s"]
    drawn = [points(container)[1] for container in axes.containers]
    for server, values in zip(CONFIG.servers, drawn, strict=True):
        wanted = [table.get((server, name), np.nan) for name in CLASSES]
        np.testing.assert_array_equal(values, wanted)
    crosses = [places(line)[0] for line in axes.lines if line.get_marker() == "x"]
    (at,) = np.concatenate(crosses)  # tree 7/8 in the class agentic
    assert round(float(at)) == CLASSES.index("agentic")


def test_acceptance_leaves_plain_decoding_out(full: Tables) -> None:
    """Plain decoding has no acceptance length."""
    drawing = figures.acceptance(full, CONFIG)
    assert "ar" not in set(drawing.data["server"])
    assert "plain" not in words(drawing.figure)


def test_speedup_names_pairs_and_verdicts(full: Tables) -> None:
    """Both panels are there, each pair with its verdict."""
    drawing = figures.speedup(full, CONFIG)
    assert len(drawing.figure.axes) == 2
    said = words(drawing.figure)
    assert "tree 15/8 against chain 16, equal width" in said
    assert "undecided" in said


def test_speedup_without_interval_is_hollow(full: Tables) -> None:
    """One launch gives no interval: the marker is hollow and has no bar."""
    table = full["comparisons"].copy()
    one = table[(table["relation"] == "baseline") & (table["workload_class"] == "all")][:1].copy()
    one["speedup_low"] = one["speedup_high"] = np.nan
    axes = figures.speedup({**full, "comparisons": one}, CONFIG).figure.axes[0]
    diamonds = [line for line in axes.lines if line.get_marker() == "D"]
    assert [line.get_markerfacecolor() for line in diamonds] == ["white"]
    bars = [line for line in axes.lines if len(places(line)[0]) == 2]
    assert [line.get_color() for line in bars] == ["black"]  # only the line at 1


def test_band_is_the_margin(full: Tables) -> None:
    """The grey band is what decides, 2 % on both sides of 1."""
    axes = figures.speedup(full, CONFIG).figure.axes[0]
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert band.x0 == pytest.approx(1 / 1.02)
    assert band.x1 == pytest.approx(1.02)


def test_histogram_is_in_percent(full: Tables) -> None:
    """A server's shares add up to 100."""
    axes = figures.histogram(full, CONFIG).figure.axes[0]
    sums = [float(np.sum(line.get_ydata())) for line in axes.lines]
    assert sums == pytest.approx([100.0] * 4)


def test_cost_is_in_milliseconds(full: Tables) -> None:
    """Plain decoding: 0.030 s a token, at one token verified."""
    axes = figures.cost(full, CONFIG).figure.axes[0]
    at, times = points(axes.containers[0])
    assert at == pytest.approx([1.0])
    assert times == pytest.approx([30.0])


def test_original_keeps_published_figures_apart(full: Tables) -> None:
    """This run and the published figures stand on axes of their own, named so."""
    drawing = figures.original(full, CONFIG)
    left, right = drawing.figure.axes
    assert left.get_xlabel() == "this run"
    assert right.get_xlabel() == "published: other system"
    assert set(drawing.data["source"]) == {"this run", "notes"}


def test_load_joins_the_levels_of_a_server(full: Tables) -> None:
    """A point a concurrency, lowest first, with the conversations in flight beside it."""
    one = full["overall"]
    four = one.assign(concurrency=4.0, tok_per_s=one["tok_per_s"] / 2,
                      tok_per_s_of_totals=one["tok_per_s_of_totals"] * 2)  # fmt: skip
    both = pd.concat([four, one])
    drawing = figures.load({**full, "load": both}, CONFIG)
    (axes,) = drawing.figure.axes
    first = places(axes.lines[0])
    plain = one[one["server"] == "ar"].iloc[0]
    assert first[0].tolist() == [plain["tok_per_s"], plain["tok_per_s"] / 2]
    assert first[1].tolist() == [plain["tok_per_s_of_totals"], plain["tok_per_s_of_totals"] * 2]
    assert {"1", "4"} <= set(words(drawing.figure).split("\n"))


def test_load_needs_two_levels(full: Tables) -> None:
    """One concurrency is no load curve."""
    assert "at two concurrencies" in words(figures.load(full, CONFIG).figure)


def test_a_huge_interval_is_cut_and_marked(full: Tables) -> None:
    """One interval a hundred times the speed leaves the axis at 1.6 times the largest value."""
    table = full["classes"].copy()
    table.loc[0, "tok_per_s_high"] = 100 * table["tok_per_s"].max()
    axes = figures.throughput({**full, "classes": table}, CONFIG).figure.axes[0]
    top = 1.6 * table["tok_per_s"].max()
    assert axes.get_ylim()[1] == pytest.approx(top)
    arrows = [
        line for line in axes.lines if line.get_marker() == "^" and line.get_color() == "black"
    ]
    assert [float(places(line)[1][0]) for line in arrows] == [pytest.approx(top)]


def test_ordinary_intervals_are_not_cut(full: Tables) -> None:
    """Where all intervals fit there is no arrow."""
    axes = figures.throughput(full, CONFIG).figure.axes[0]
    assert not [line for line in axes.lines if line.get_color() == "black"]


def test_published_configurations_look_like_their_namesakes_only(full: Tables) -> None:
    """A published configuration without a namesake in this run has a look of its own."""
    notes = full["published"].assign(config=full["published"]["config"].replace("AR", "plain"))
    left, right = figures.original({**full, "published": notes}, CONFIG).figure.axes
    here, there = (
        {
            bars.get_label(): bars.patches[0].get_facecolor()
            for bars in axes.containers
            if isinstance(bars, BarContainer)
        }
        for axes in (left, right)
    )
    assert there["plain"] == here["plain"]
    assert there["DFlash"] not in here.values()
