"""Under what conditions was measured: differences, start-up, findings, telemetry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from ddtree_bench.report.grid import Grid, Row, group, head, number, text
from ddtree_bench.report.tex import escape
from ddtree_bench.report.view import View, column
from ddtree_bench.status import Status

_HOST = "host"
_LETTERS = 60
_HASH: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_DIGITS: Final = 12
"""Of a hash, in print."""
_GIB = 2**30


def differences(view: View) -> Grid:
    """In what compared servers differ that the configuration does not vary; a row a fact."""
    frame = view.tables["differences"]
    facts = frame.groupby(["reference", "fact", "value", "reference_value"], sort=False)
    return Grid(
        "tab:differences",
        escape(
            "Facts in which servers differ from the baseline, or a tree from the chain of equal "
            "width, and which do not follow from algorithm, drafter, block size, budget or top-k "
            "cap; names, ports and seeds left out. Each is a second factor of that comparison. Of "
            "two lists: how many values each has, and those that the other lacks."
        ),
        r"L{26mm}L{22mm}L{36mm}L{32mm}L{32mm}",
        (tuple(map(head, ("Servers", "Against", "Fact", "Servers' value", "Other's value"))),),
        tuple(
            (
                text(", ".join(map(view.title, rows["server"]))),
                text(view.title(str(reference))),
                text(fact),
                *map(text, _both(str(value), str(other))),
            )
            for (reference, fact, value, other), rows in facts
        ),
    )


def _both(value: str, other: str) -> tuple[str, str]:
    """Two values in print: hashes and long ones cut, of lists only what the other lacks."""
    lists = _listed(value), _listed(other)
    if lists[0] is None or lists[1] is None:
        return _cut(value), _cut(other)
    return _beyond(lists[0], lists[1]), _beyond(lists[1], lists[0])


def _listed(value: str) -> list[Any] | None:
    try:
        found = json.loads(value)
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, list) else None


def _beyond(some: Sequence[Any], others: Sequence[Any]) -> str:
    alone = [str(value) for value in some if value not in others]
    return f"{len(some)} values" + (f", alone: {', '.join(alone)}" if alone else "")


def startup(view: View) -> Grid:
    """How long each step of a server's start took."""
    return Grid(
        "tab:startup",
        escape(
            "Start-up by the servers' own logs: median over launches of the seconds and of the "
            "GPU memory that a step took. Tokens: of each request in a captured graph."
        ),
        r"L{70mm}rrrr",
        (tuple(map(head, ("Step", "Launches", "Seconds", "Memory (GiB)", "Tokens"))),),
        tuple(_startup_rows(view)),
    )


def _startup_rows(view: View) -> Iterator[Row]:
    frame = view.tables["startup"]
    names = ("elapsed_s", "used_gib", "tokens_per_request")
    for server in view.config.servers:
        mine = frame[frame["server"] == server]
        if not mine.empty:
            yield group(f"{view.title(server)}{_pool(view, server)}", 5)
        for phase, rows in mine.groupby("phase", sort=False):
            values = [number(column("startup", name), _median(rows[name])) for name in names]
            yield text(phase), text(rows["launch"].nunique()), *values


def _pool(view: View, server: str) -> str:
    """The KV cache that the server allocated, for the head of its rows."""
    facts = view.tables["environment"]
    wanted = (facts["server"] == server) & (facts["name"] == "startup.kv_pool_tokens")
    sizes = facts[wanted]["value"].unique()
    return f": KV cache of {' or '.join(sizes)} tokens" if len(sizes) else ""


def _median(values: pd.Series) -> float | None:
    known = values.dropna()
    return None if known.empty else float(known.median())


def flags(view: View) -> Grid:
    """How many cells of each server are flagged, and for what."""
    return Grid(
        "tab:flags",
        escape(
            "Measured cells with something that may have changed their speed. A flagged cell is "
            "counted like any other, except that a launch whose GPU was throttled is left out of "
            "comparisons. Disturbed: cells during which another process took more than 10 % of a "
            "CPU or of a GPU. Overshoot: tokens that the server sent past a stop token, cut. "
            "Client, lag: largest share of a CPU that the client took in a cell, and how late its "
            "threads were at most."
        ),
        r"L{26mm}rrrrrrL{43mm}",
        (
            tuple(
                map(
                    head,
                    ("Server", "Cells", "Flagged", "Disturbed (%)", "Overshoot", "Client (%)",
                     "Lag (ms)", "Flags: cells"),
                )
            ),
        ),
        tuple(_flag_row(view, server) for server in view.config.servers),
    )  # fmt: skip


def _flag_row(view: View, server: str) -> Row:
    cells = view.tables["cells"]
    mine = cells[(cells["server"] == server) & (cells["status"] == Status.OK)]
    codes = mine["flags"].fillna("").str.split()
    by_code = codes.explode().dropna().value_counts(sort=False)
    disturbed = codes.map(lambda some: bool({"busy_host", "busy_gpu"} & set(some)))
    share = None if mine.empty else float(disturbed.mean())
    client, lag = mine["client_cpu_share"].dropna(), mine["client_lag_s"].dropna()
    return (
        text(view.title(server)),
        text(len(mine)),
        text(int((codes.map(len) > 0).sum())),
        number(column("telemetry", "foreign_share"), share),
        text(f"{mine['overshoot_tokens'].fillna(0).sum():.0f}"),
        number(column("cells", "client_cpu_share"), None if client.empty else client.max()),
        number(column("cells", "client_lag_s"), None if lag.empty else lag.max()),
        text(", ".join(f"{code}: {count}" for code, count in by_code.items())),
    )


def findings(view: View) -> Grid:
    """Everything that was noticed, a row a server, level and code."""
    frame = view.tables["findings"]
    return Grid(
        "tab:findings",
        escape(
            "What was noticed. Level: in a whole launch (its log from start to end) or during a "
            "cell. In: launches or cells. Times: occurrences. The example is the first one."
        ),
        r"L{26mm}lL{44mm}rrL{54mm}",
        (tuple(map(head, ("Server", "Level", "What", "In", "Times", "Example"))),),
        tuple(
            (
                text(view.title(str(server))),
                text(level),
                text(rows["sentence"].iloc[0]),
                text(len(rows)),
                text(f"{rows['count'].sum():.0f}"),
                text(_cut(rows["detail"].iloc[0])),
            )
            for (server, level, _), rows in frame.groupby(["server", "level", "code"], sort=False)
        ),
    )


def gpus(view: View) -> Grid:
    """Clocks, power, temperature, memory and energy of the GPUs, by server."""
    frame = view.tables["telemetry"]
    measured = frame[frame["device"] != _HOST]
    return Grid(
        "tab:gpus",
        escape(
            "GPUs during the measured cells: lowest, mean and highest of the samples. Energy: of "
            "all GPUs, per token produced, prefill and idle time included; mean over cells."
        ),
        r"L{24mm}rrrrrr",
        (
            (*map(head, ("Server", "SM clock", "Power", "Temperature", "Memory", "Throttled",
                         "Energy")),),
            (*map(head, ("", "(MHz)", "(W)", "(°C)", "(GiB)", "(%)", "(J/tok)")),),
        ),
        tuple(
            _gpu_row(view, str(server), rows)
            for server, rows in measured.groupby("server", sort=False)
        ),
    )  # fmt: skip


def _gpu_row(view: View, server: str, rows: pd.DataFrame) -> Row:
    cells = view.tables["cells"]
    energy = cells[cells["server"] == server]["joules_per_token"]
    return (
        text(view.title(server)),
        text(_range(rows, "sm_clock_{}_mhz")),
        text(_range(rows, "power_{}_w")),
        text(_range(rows, "temperature_{}_c")),
        text(_range(rows, "memory_{}_bytes", scale=_GIB, decimals=1)),
        number(column("telemetry", "throttled_share"), _mean(rows["throttled_share"])),
        number(column("cells", "joules_per_token"), _mean(energy)),
    )


def _range(rows: pd.DataFrame, name: str, scale: float = 1, decimals: int = 0) -> str:
    """Lowest, mean and highest over the cells, such as `345 / 1810 / 1980`."""
    columns = [rows[name.format(which)].dropna() for which in ("low", "mean", "high")]
    if any(values.empty for values in columns):
        return ""
    low, mean, high = columns
    shown = (low.min(), mean.mean(), high.max())
    return " / ".join(f"{value / scale:.{decimals}f}" for value in shown)


def host(view: View) -> str:
    """One sentence on the CPUs while cells were measured."""
    frame = view.tables["telemetry"]
    rows = frame[frame["device"] == _HOST]
    if rows.empty:
        return (
            "The CPUs were not watched: no cell was long enough for a sample, or the servers were "
            "attached."
        )
    others = 100 * np.asarray(rows["foreign_share"], dtype=float)
    measured = int((view.tables["cells"]["status"] == Status.OK).sum())
    return (
        f"The CPUs were sampled about once a second, in {len(rows)} of {measured} measured cells "
        "at least once; the others were shorter. In those cells other processes took "
        f"{others.mean():.1f} % of all CPUs on average and {others.max():.1f} % in the worst cell."
    )


def _mean(values: pd.Series) -> float | None:
    known = values.dropna()
    return None if known.empty else float(known.mean())


def _cut(value: str) -> str:
    if _HASH.fullmatch(value):
        return value[:_DIGITS] + " …"
    return value if len(value) <= _LETTERS else value[:_LETTERS] + " …"
