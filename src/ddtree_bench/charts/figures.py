"""The report's figures, each a function of the tables.

Every function returns a `Drawing`: the figure and the rows that it shows.
Figures are drawn at the lowest concurrency measured; the report's tables hold the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ddtree_bench.charts.data import Tables, lowest_concurrency, titles
from ddtree_bench.charts.style import (
    Look,
    empty_figure,
    look,
    new_figure,
    plain,
    put_legend_above,
)
from ddtree_bench.columns import COST, POOLED, TABLES, Column
from ddtree_bench.config import CLASSES, Config

_CLIP = 1.6
"""An axis ends at so many times the largest value, however far an interval reaches."""
_DODGE = 0.7
"""Share of the space between two groups that a group's points fill."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure and the rows it was drawn from."""

    figure: Figure
    data: pd.DataFrame


Draw = Callable[[Tables, Config], Drawing]


def throughput(tables: Tables, config: Config) -> Drawing:
    """Speed by workload class with intervals."""
    data = lowest_concurrency(tables["classes"])
    data = data[data["workload_class"].isin(CLASSES)]
    if data["tok_per_s"].notna().sum() == 0:
        return Drawing(empty_figure("No cell ended well: there is no speed to show."), data)
    return Drawing(_by_class(data, TABLES["classes"].column("tok_per_s"), config), data)


def acceptance(tables: Tables, config: Config) -> Drawing:
    """Acceptance length by workload class."""
    data = lowest_concurrency(tables["classes"])
    data = data[data["workload_class"].isin(CLASSES) & data["acceptance_length"].notna()]
    if data.empty:
        return Drawing(empty_figure("No drafting server was measured: nothing was accepted."), data)
    return Drawing(_by_class(data, TABLES["classes"].column("acceptance_length"), config), data)


def speedup(tables: Tables, config: Config) -> Drawing:
    """Speed-up of every comparison with its interval, against plain decoding and chains."""
    data = lowest_concurrency(tables["comparisons"])
    data = data[data["speedup"].notna()]
    panels = [data[data["relation"] == "baseline"], data[data["relation"] != "baseline"]]
    panels = [panel for panel in panels if not panel.empty]
    if not panels:
        return Drawing(
            empty_figure("No two servers have common prompts: nothing to compare."), data
        )
    rows = [len(_pairs(panel)) for panel in panels]
    figure = new_figure(0.4 * len(rows) + 0.2 * sum(rows) + 0.2)
    axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=rows)[:, 0]
    for place, panel in zip(axes, panels, strict=True):
        _forest(place, panel, config)
    axes[-1].set_xlabel("Speed-up (above 1: the first-named is faster)")
    return Drawing(figure, data)


def histogram(tables: Tables, config: Config) -> Drawing:
    """Share of verify steps by number of accepted drafts, all classes."""
    table = tables["histogram"]
    data = table[table["workload_class"] == POOLED]
    if data.empty:
        return Drawing(empty_figure("No server reported its accepted drafts."), data)
    figure = new_figure(2.0)
    axes = figure.add_subplot()
    for server, rows, appearance in _by_server(data, config):
        axes.plot(rows["accepted_drafts"], 100 * rows["share"], color=appearance.colour,
                  marker=appearance.marker, linewidth=0.8, label=plain(server))  # fmt: skip
    axes.set_xlabel("Drafts accepted in one verify step")
    axes.set_ylabel("Share of verify steps (%)")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y")
    put_legend_above(axes)
    return Drawing(figure, data)


def cost(tables: Tables, config: Config) -> Drawing:
    """Step time against tokens verified, and the speed-up predicted from it beside the measured."""
    data = lowest_concurrency(tables["cost"])
    data = data[data["step_time_s"].notna() & data["verify_width"].notna()]
    if data.empty:
        return Drawing(empty_figure("No step time was measured: nothing was streamed."), data)
    pairs = lowest_concurrency(tables["comparisons"])
    pairs = pairs[(pairs["relation"] == "baseline") & (pairs["workload_class"] == POOLED)]
    figure = new_figure(2.3)
    left, right = figure.subplots(1, 2)
    _step_time(left, data, config)
    _predicted(right, pairs, config)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, columnspacing=1.2,
                  handletextpad=0.3)  # fmt: skip
    shown = pairs[["candidate", "speedup", "predicted_speedup"]]
    return Drawing(figure, data.merge(shown, "left", left_on="server", right_on="candidate"))


def load(tables: Tables, config: Config) -> Drawing:
    """Throughput of all conversations against the speed of one, by conversations in flight."""
    data = tables["load"]
    if data.empty:
        return Drawing(empty_figure("No server has a class at two concurrencies."), data)
    figure = new_figure(2.4)
    axes = figure.add_subplot()
    for server, rows, appearance in _by_server(data, config):
        path = rows.sort_values("concurrency")
        axes.plot(path["tok_per_s"], path["tok_per_s_of_totals"], color=appearance.colour,
                  marker=appearance.marker, linewidth=0.8, label=plain(server))  # fmt: skip
        for _, row in path.iterrows():
            axes.annotate(
                f"{row['concurrency']:.0f}", (row["tok_per_s"], row["tok_per_s_of_totals"]),
                xytext=(4, 3), textcoords="offset points", fontsize=7, color=appearance.colour,
            )  # fmt: skip
    axes.set_xlabel("Speed of one conversation (tok/s)")
    axes.set_ylabel("Throughput (tok/s)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid()
    put_legend_above(axes)
    return Drawing(figure, data)


def original(tables: Tables, config: Config) -> Drawing:
    """The three prompts of the original notes: this run, and what was published."""
    here, notes = tables["original"], tables["published"]
    here = here[here["tok_per_s"].notna()]
    shown = here.assign(source="this run")
    data = pd.concat([shown, notes]) if len(notes) else shown
    if here.empty and notes.empty:
        return Drawing(empty_figure("The three original prompts were not measured."), data)
    figure = new_figure(2.7)
    left, right = figure.subplots(1, 2)
    prompts = list(dict.fromkeys([*here["prompt_id"], *notes["prompt_id"]]))
    names = titles(config)
    mine = [(names[s], rows, a) for s, rows, a in _groups(here, "server", list(names))]
    _prompt_bars(left, prompts, mine, "this run")
    # a published configuration looks like this run's of the same name, and like no other
    known = list(names.values())
    configs = list(dict.fromkeys([*known, *notes["config"]]))
    _prompt_bars(right, prompts, _groups(notes, "config", configs), "published: other system")
    return Drawing(figure, data)


def _by_class(data: pd.DataFrame, column: Column, config: Config) -> Figure:
    """Points with intervals, a group a class; a cross on the axis where a server has no value."""
    figure = new_figure(2.1)
    axes = figure.add_subplot()
    groups = list(_by_server(data, config))
    for position, (server, rows, appearance) in enumerate(groups):
        at = np.arange(len(CLASSES)) + _offset(position, len(groups))
        found = rows.set_index("workload_class").reindex(list(CLASSES))
        _points(axes, at, found, column.name, appearance, plain(server))
        absent = found[column.name].isna().to_numpy()
        axes.plot(at[absent], np.zeros(absent.sum()), "x", color=appearance.colour, clip_on=False)
    axes.set_xticks(range(len(CLASSES)), CLASSES)
    axes.set_xlim(-0.5, len(CLASSES) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(plain(column.label))
    axes.margins(y=0.12)  # no marker is cut by the frame
    axes.set_ylim(bottom=0)
    _clip(axes, data, column.name)
    axes.grid(axis="y")
    for border in np.arange(len(CLASSES) - 1) + 0.5:
        axes.axvline(border, color="#DDDDDD", linewidth=0.5)
    put_legend_above(axes)
    return figure


def _clip(axes: Axes, data: pd.DataFrame, name: str) -> None:
    """Keep intervals that tell nothing from squeezing the values; arrows mark where they go on."""
    if f"{name}_high" not in data:
        return
    top = _CLIP * float(data[name].max())
    if not data[f"{name}_high"].max() > top:
        return
    axes.set_ylim(top=top)
    for container in axes.containers:
        if not isinstance(container, ErrorbarContainer):
            continue
        bars = [segment for lines in container.lines[2] for segment in lines.get_segments()]
        for x, high in (segment[-1] for segment in bars if len(segment) > 0):
            if high > top:
                axes.plot(x, top, "^", color="black", markersize=4, clip_on=False)


def _points(
    axes: Axes, at: np.ndarray, rows: pd.DataFrame, name: str, appearance: Look, label: str
) -> None:
    """One server's values at the places `at`, with intervals where the rows have them."""
    values = rows[name].to_numpy(float)
    errors = None
    if f"{name}_low" in rows:
        low, high = rows[f"{name}_low"].to_numpy(float), rows[f"{name}_high"].to_numpy(float)
        errors = np.array([values - low, high - values])
    axes.errorbar(at, values, yerr=errors, fmt=appearance.marker, color=appearance.colour,
                  elinewidth=0.8, label=label)  # fmt: skip


def _forest(axes: Axes, data: pd.DataFrame, config: Config) -> None:
    """One line a pair: pooled value with interval, the classes as faint dots, the verdict."""
    names = titles(config)
    pairs = _pairs(data)
    for row, (candidate, reference, relation) in enumerate(pairs):
        of_pair = (data["candidate"] == candidate) & (data["reference"] == reference)
        rows = data[of_pair & (data["relation"] == relation)]
        classes = rows[rows["workload_class"] != POOLED]
        colour = look(list(names).index(candidate)).colour
        axes.plot(classes["speedup"], np.full(len(classes), row), "|", color=colour, alpha=0.6)
        for _, pooled in rows[rows["workload_class"] == POOLED].iterrows():
            _interval(axes, row, pooled, colour)
    margin = 1 + config.analysis.margin
    axes.axvspan(1 / margin, margin, color="#EEEEEE", zorder=0)
    axes.axvline(1, color="black", linewidth=0.6)
    labels = [plain(_pair_label(pair, names)) for pair in pairs]
    axes.set_yticks(range(len(pairs)), labels)
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.grid(axis="x")
    axes.margins(x=0.08)


def _interval(axes: Axes, row: int, pooled: pd.Series, colour: str) -> None:
    known = bool(np.isfinite(pooled["speedup_low"]))
    if known:
        axes.plot([pooled["speedup_low"], pooled["speedup_high"]], [row, row], color=colour)
    face = colour if known else "white"
    axes.plot(pooled["speedup"], row, "D", color=colour, markerfacecolor=face)
    axes.annotate(
        plain(str(pooled["verdict"]).replace("_", " ")),
        (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=8,
    )  # fmt: skip


def _pairs(data: pd.DataFrame) -> list[tuple[str, str, str]]:
    columns = (data["candidate"], data["reference"], data["relation"])
    return list(dict.fromkeys(zip(*columns, strict=True)))


def _pair_label(pair: tuple[str, str, str], names: dict[str, str]) -> str:
    candidate, reference, relation = pair
    width = ", equal width" if relation == "equal width" else ""
    return f"{names[candidate]} against {names[reference]}{width}"


def _step_time(axes: Axes, data: pd.DataFrame, config: Config) -> None:
    for server, rows, appearance in _by_server(data, config):
        scaled = rows.assign(
            **{
                name: rows[name].map(COST.column(name).scaled)
                for name in ("step_time_s", "step_time_low_s", "step_time_high_s")
            }
        )
        scaled = scaled.rename(
            columns={"step_time_low_s": "step_time_s_low", "step_time_high_s": "step_time_s_high"}
        )
        at = rows["verify_width"].to_numpy(float)
        _points(axes, at, scaled, "step_time_s", appearance, plain(server))
    axes.set_xlabel("Tokens verified in a step")
    axes.set_ylabel(plain(COST.column("step_time_s").label))
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 1.08 * data["verify_width"].max())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid()


def _predicted(axes: Axes, pairs: pd.DataFrame, config: Config) -> None:
    both = pairs[pairs["predicted_speedup"].notna() & pairs["speedup"].notna()]
    for _, rows, appearance in _groups(both, "candidate", list(config.servers)):
        at = rows["predicted_speedup"].to_numpy(float)
        _points(axes, at, rows, "speedup", appearance, "")
    top = max(1.0, both["speedup"].max(), both["predicted_speedup"].max()) if len(both) else 1.0
    axes.plot([0, 1.1 * top], [0, 1.1 * top], color="black", linewidth=0.6)
    axes.set_xlim(0, 1.1 * top)
    axes.set_ylim(0, 1.1 * top)
    axes.set_xlabel("Predicted speed-up over plain decoding")
    axes.set_ylabel("Measured speed-up")
    axes.grid()


def _prompt_bars(
    axes: Axes, prompts: Sequence[str], groups: list[tuple[str, pd.DataFrame, Look]], title: str
) -> None:
    width = _DODGE / max(1, len(groups))
    for position, (label, rows, appearance) in enumerate(groups):
        found = rows.drop_duplicates("prompt_id").set_index("prompt_id").reindex(list(prompts))
        spread = found.get("tok_per_s_sd")
        at = np.arange(len(prompts)) + _offset(position, len(groups))
        axes.bar(at, found["tok_per_s"].to_numpy(float), width, yerr=spread, label=plain(label),
                 color=appearance.colour, edgecolor="white", linewidth=0.3,
                 hatch=appearance.hatch, error_kw={"elinewidth": 0.8})  # fmt: skip
    axes.set_xticks(range(len(prompts)), [plain(prompt) for prompt in prompts])
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("Speed (tok/s)")
    axes.set_xlabel(title)
    axes.grid(axis="y")
    if groups:
        put_legend_above(axes, columns=2, wide=True)


def _offset(position: int, count: int) -> float:
    """Where the point at `position` of `count` lies within its group, 0 being the middle."""
    return _DODGE * ((position + 0.5) / count - 0.5)


def _groups(
    data: pd.DataFrame, key: str, order: Sequence[str]
) -> list[tuple[str, pd.DataFrame, Look]]:
    """The rows of each value of `key`, in this order, with the look of its place in it."""
    found = [(name, data[data[key] == name], look(place)) for place, name in enumerate(order)]
    return [group for group in found if not group[1].empty]


def _by_server(data: pd.DataFrame, config: Config) -> list[tuple[str, pd.DataFrame, Look]]:
    """Title, rows and look of each server that has rows."""
    names = titles(config)
    return [(names[s], rows, a) for s, rows, a in _groups(data, "server", list(names))]
