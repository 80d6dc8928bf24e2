"""The first page: what was measured, what follows from it, and what would overturn that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import pandas as pd

from ddtree_bench.columns import NOT_MEASURED, POOLED
from ddtree_bench.config import CLASSES
from ddtree_bench.report.grid import (
    INTERVAL,
    Cell,
    Grid,
    Row,
    failed,
    head,
    interval,
    number,
    text,
)
from ddtree_bench.report.tex import Tex, escape
from ddtree_bench.report.view import (
    BASELINE,
    EQUAL_WIDTH,
    PLANNED,
    View,
    column,
    ratio_with_interval,
)
from ddtree_bench.stats.verdict import Verdict

_HARDWARE = {
    "GPU": r"machine\.gpu\..*\.name",
    "processor": r"machine\.cpu_model",
    "cores": r"machine\.cpu_usable",
    "memory": r"machine\.memory_bytes",
}
_SENTENCES = {verdict.value: verdict.sentence for verdict in Verdict}
_EMPTY: Row = (Cell(escape(NOT_MEASURED)), Cell(Tex("")), Cell(Tex("")))


def scope(view: View) -> list[tuple[str, str]]:
    """Facts of the first page: name and value."""
    servers = view.config.servers.values()
    cells = view.tables["cells"]
    good = int((cells["status"] == "ok").sum())
    launches = view.tables["servers"]
    return [
        ("Engine", ", ".join(_distinct(server.engine for server in servers))),
        ("Target model", ", ".join(_distinct(server.model for server in servers))),
        ("Drafter", ", ".join(_distinct(s.drafter for s in servers if s.drafter)) or "none"),
        ("Machine", machine(view.tables["environment"])),
        (
            "Launches, cells",
            f"{launches['launches_ok'].sum():.0f} launches, "
            f"{launches['launches_failed'].sum():.0f} more failed; "
            f"{good} cells, {len(cells) - good} more failed or not run; simulated: "
            + ("; ".join(simulated(view.tables["environment"])) or "none"),
        ),
    ]


def machine(environment: pd.DataFrame) -> str:
    """Processors, memory and graphics cards that were seen."""
    facts = environment[environment["name"].str.startswith("machine.")]
    values = {
        name: _distinct(facts[facts["name"].str.fullmatch(pattern)]["value"])
        for name, pattern in _HARDWARE.items()
    }
    values["memory"] = _distinct(f"{float(size) / 2**30:.0f} GiB" for size in values["memory"])
    values["cores"] = [f"{count} cores" for count in values["cores"]]
    return "; ".join(" or ".join(some) for some in values.values() if some) or "not recorded"


def simulated(environment: pd.DataFrame) -> list[str]:
    """Facts that say numbers were made up, such as SGLANG_SIMULATE_ACC_LEN."""
    named = environment["name"].str.contains("SIMULATE|synthetic", case=False, regex=True)
    on = ~environment["value"].str.lower().isin(["", "0", "false", "none", "null"])
    rows = environment[named & on]
    return _distinct(f"{row['name']} {row['value']}" for _, row in rows.iterrows())


def dates(started_unix_s: pd.Series) -> str:
    """First to last day, UTC."""
    known = started_unix_s.dropna()
    if known.empty:
        return "never"
    days = [datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d") for t in (known.min(), known.max())]
    return " to ".join(_distinct(days))


def headline(view: View) -> list[str]:
    """The findings, a sentence each; if there are none, why."""
    best = _fastest(view)
    if best is None:
        return ["No cell ended well, so this report holds no speed and no verdict."]
    of_best = view.comparisons(BASELINE)
    of_best = of_best[of_best["candidate"] == best["server"]]
    judged = pd.concat([of_best, view.comparisons(EQUAL_WIDTH), view.comparisons(PLANNED)])
    return [
        f"Highest pooled speed{view.at_lowest}, by estimate: {_speed(view, best)}.",
        *(_sentence(view, pair) for _, pair in judged[judged["speedup"].notna()].iterrows()),
        *_under_load(view),
    ]


def _fastest(view: View, concurrency: int | None = None) -> pd.Series | None:
    """Pooled figures of the fastest server; sound answers and more classes go before speed."""
    pooled = [view.overall(name, concurrency) for name in view.config.servers]
    measured = [row for row in pooled if row is not None]
    ranked = [row for row in measured if not view.faulty(row["server"])] or measured
    most = max((row["n_classes"] for row in ranked), default=0)
    whole = [row for row in ranked if row["n_classes"] == most]
    return max(whole, key=lambda row: float(row["tok_per_s"]), default=None)


def _speed(view: View, row: pd.Series) -> str:
    show = column("overall", "tok_per_s").show
    ends = [show(row[name]) for name in ("tok_per_s_low", "tok_per_s_high")]
    within = "(no interval)" if NOT_MEASURED in ends else f"[{ends[0]}, {ends[1]}]"
    return f"{view.title(row['server'])}, {show(row['tok_per_s'])} tok/s {within}"


def _under_load(view: View) -> Iterator[str]:
    """How the servers compare at every higher concurrency, an item each."""
    for concurrency in view.concurrencies[1:]:
        best = _fastest(view, concurrency)
        said = [] if best is None else [f"highest pooled speed, by estimate: {_speed(view, best)}"]
        for whom, relation in ((view.baseline, BASELINE), ("the equal chain", EQUAL_WIDTH)):
            if verdicts := _by_verdict(view, relation, concurrency):
                said.append(f"against {whom} {verdicts}")
        yield f"With {view.in_flight(concurrency)}: {'; '.join(said) or 'nothing was measured'}."


def _by_verdict(view: View, relation: str, concurrency: int) -> str:
    """Which servers have which verdict, as `faster: a, b, undecided: c`; empty if none has."""
    servers: dict[str, list[str]] = {}
    for _, pair in view.comparisons(relation, concurrency=concurrency).iterrows():
        servers.setdefault(pair["verdict"], []).append(view.title(pair["candidate"]))
    codes = [code for code in ("", *_SENTENCES) if code in servers]
    return ", ".join(f"{verdict_label(code)}: {', '.join(servers[code])}" for code in codes)


def _sentence(view: View, pair: pd.Series) -> str:
    against = view.title(pair["reference"])
    if pair["relation"] == EQUAL_WIDTH:
        against += ", the chain that verifies as many tokens"
    said = verdict_sentence(pair["verdict"])
    return (
        f"{view.title(pair['candidate'])} against {against}: {said}, speed-up "
        f"{ratio_with_interval(pair)}{_by_class(view, pair)}, {pair['n_prompts']:.0f} prompts, "
        f"{pair['n_launches']:.0f} launches."
    )


def _by_class(view: View, pair: pd.Series) -> str:
    """From the lowest to the highest class, as a clause; empty with fewer than two."""
    found = {name: view.comparison_of(pair, name) for name in CLASSES}
    rows = {name: row["speedup"] for name, row in found.items() if row is not None}
    known = {name: value for name, value in rows.items() if value == value}
    if len(known) < 2:
        return ""
    show = column("comparisons", "speedup").show
    ends = (
        f"{show(known[name])} ({name})"
        for name in (min(known, key=known.__getitem__), max(known, key=known.__getitem__))
    )
    return f", by class {' to '.join(ends)}"


def verdict_sentence(code: str) -> str:
    """The verdict in words; a dash where none was reached."""
    return _SENTENCES.get(code, "no verdict")


def verdict_label(code: str) -> str:
    """The verdict for narrow columns, as the section on method explains it."""
    return code.replace("_", " ") or NOT_MEASURED


def verdicts(view: View) -> Grid:
    """Every server's speed, speed-ups, acceptance and verdicts, the five classes pooled."""
    return Grid(
        "tab:verdicts",
        escape(
            f"Verdicts at concurrency {_lowest(view)}, the five classes pooled with equal weight. "
            f"Brackets: {view.confidence} intervals. A tree is judged against its equal chain, "
            f"which verifies as many tokens, a chain against {view.baseline}. Accepted: tokens "
            "that a verify step yields. n: prompts × launches."
        ),
        rf"L{{24mm}}{INTERVAL}{INTERVAL}{INTERVAL}rrL{{24mm}}",
        (
            (
                head("Server"),
                *(head(name, 3) for name in ("Speed", "Against", "Against")),
                *(head(name) for name in ("Accepted", "n", "Verdict")),
            ),
            (
                head(""),
                *(head(name, 3) for name in ("(tok/s)", "baseline", "equal chain")),
                *(head(name) for name in ("tokens", "", "")),
            ),
        ),
        tuple(_verdict_row(view, name) for name in view.config.servers),
    )


def _verdict_row(view: View, server: str) -> Row:
    overall = view.overall(server)
    name = text(view.title(server))
    if overall is None:
        return name, failed(view.reason(server), 12)
    against = [view.comparison(server, relation) for relation in (BASELINE, EQUAL_WIDTH)]
    judged = next((pair for pair in reversed(against) if pair is not None), None)
    ratios = [cell for pair in against for cell in _ratio_cells(pair)]
    missing = "*" if overall["n_classes"] < len(CLASSES) else ""
    size = f"{overall['n_prompts']:.0f}×{overall['n_launches']:.0f}{missing}"
    return (
        name,
        *interval(
            column("overall", "tok_per_s"),
            *overall[["tok_per_s", "tok_per_s_low", "tok_per_s_high"]],
        ),
        *ratios,
        number(column("overall", "acceptance_length"), overall["acceptance_length"]),
        text(size),
        text("reference" if judged is None else verdict_label(judged["verdict"])),
    )


def _ratio_cells(pair: pd.Series | None) -> Row:
    if pair is None:
        return _EMPTY
    values = pair[["speedup", "speedup_low", "speedup_high"]]
    return interval(column("comparisons", "speedup"), *values)


def overturn(view: View) -> list[str]:
    """What would change the verdicts: an item a pair that may turn, and what is missing."""
    found = [*_may_turn(view), *_missing(view)]
    return found or ["Nothing in this run's own data; see the threats to validity."]


def _may_turn(view: View) -> Iterator[str]:
    for relation in (EQUAL_WIDTH, PLANNED, BASELINE):
        for _, pair in view.comparisons(relation).iterrows():
            doubts = [*_standing(view, pair), *_turned(view, pair)]
            if doubts:
                yield f"{_names(view, pair)}: {'; '.join(doubts)}."


def _standing(view: View, pair: pd.Series) -> Iterator[str]:
    """Why a verdict does not stand firm."""
    if pair["verdict"] in ("", Verdict.UNDECIDED):
        yield f"undecided ({pair['verdict_detail']})"
    elif pair["verdict"] in (Verdict.FASTER_BELOW_MARGIN, Verdict.SLOWER_BELOW_MARGIN):
        margin = f"±{100 * view.config.analysis.margin:g} %"
        yield f"the interval {ratio_with_interval(pair)} reaches into the margin of {margin}"


def _turned(view: View, pair: pd.Series) -> Iterator[str]:
    """Classes and loads in which the estimate lies on the other side of 1, decided or not."""
    places = {name: view.comparison_of(pair, name) for name in CLASSES}
    for load in view.concurrencies[1:]:
        places[f"with {view.in_flight(load)}"] = view.comparison_of(pair, POOLED, load)
    turned = [
        f"{place} {ratio_with_interval(there)}"
        for place, there in places.items()
        if there is not None and (there["speedup"] - 1) * (pair["speedup"] - 1) < 0
    ]
    if turned:
        yield f"by estimate on the other side of 1: {', '.join(turned)}"


def _missing(view: View) -> Iterator[str]:
    for server in view.config.servers:
        overall = view.overall(server)
        if overall is None:
            yield f"{view.title(server)} has no pooled figure: {view.reason(server)}."
        elif overall["n_classes"] < len(CLASSES):
            yield (
                f"{view.title(server)} is pooled over {overall['n_classes']:.0f} of {len(CLASSES)} "
                "classes (marked *); the missing ones could move it."
            )


def _names(view: View, pair: pd.Series) -> str:
    return f"{view.title(pair['candidate'])} against {view.title(pair['reference'])}"


def _lowest(view: View) -> str:
    return str(view.concurrencies[0]) if view.concurrencies else NOT_MEASURED


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
