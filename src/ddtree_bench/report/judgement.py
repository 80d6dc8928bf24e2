"""What follows from the numbers: the one line, causes, choices, answers, latency and load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ddtree_bench.charts.data import lowest_concurrency
from ddtree_bench.columns import NOT_MEASURED, POOLED, TABLES
from ddtree_bench.config import CLASSES
from ddtree_bench.report.grid import (
    INTERVAL,
    Cell,
    Grid,
    Row,
    failed,
    group,
    head,
    interval,
    number,
    text,
)
from ddtree_bench.report.tex import Tex, escape
from ddtree_bench.report.view import BASELINE, EQUAL_WIDTH, View, column, ratio_with_interval
from ddtree_bench.stats.cause import Cause, cause_of
from ddtree_bench.stats.verdict import Verdict

_FASTER = (Verdict.FASTER, Verdict.FASTER_BELOW_MARGIN)
_METRICS = {
    "ttft_s": ("TTFT", "ms", 1000.0, 1),
    "tpot_s": ("TPOT", "ms", 1000.0, 1),
    "burst_gap_s": ("Gap", "ms", 1000.0, 1),
    "end_s": ("End", "s", 1.0, 2),
    "tok_per_s": ("Speed of a user", "tok/s", 1.0, 1),
}
"""By name in the table of latency: how it is called, its unit, factor and decimals."""


def bottom_line(view: View) -> str:
    """The one sentence that a reader may quote."""
    pairs = view.comparisons(BASELINE)
    if not pairs["speedup"].notna().any():
        return "Nothing was compared: no verdict."
    faster = pairs[pairs["verdict"].isin(_FASTER)]
    if faster.empty:
        open_ones = pairs["verdict"].isin([Verdict.UNDECIDED, Verdict.NOT_TESTED])
        so_far = "; no comparison with it is decided" if open_ones.all() else ""
        traffic = f"on this traffic{view.at_lowest}"
        return f"No server is shown to be faster than {view.baseline} {traffic}{so_far}."
    classes = faster["candidate"].map(lambda name: _classes(view, name))
    best = faster[classes == classes.max()].sort_values("speedup").iloc[-1]
    said = f"{view.title(best['candidate'])} is {ratio_with_interval(best)} times as fast as "
    said += f"{view.baseline}{view.at_lowest}{_against_its_chain(view, str(best['candidate']))}"
    if len(faster) > 1:
        said += f"; of {len(faster)} servers shown to be faster it has the highest estimate"
    return f"{said}."


def _classes(view: View, server: str) -> float:
    """Classes in the server's pooled figure: one that lacks some is no match for a whole one."""
    overall = view.overall(server)
    return 0.0 if overall is None else float(overall["n_classes"])


def _against_its_chain(view: View, server: str) -> str:
    """A tree's verdict against the chain of equal width, as a clause; empty for others."""
    pair = view.comparison(server, EQUAL_WIDTH)
    if pair is None or pair["speedup"] != pair["speedup"]:
        return ""
    chain = view.title(pair["reference"])
    if pair["verdict"] in _FASTER:
        return f" and faster than {chain}, its equal in width, by {ratio_with_interval(pair)}"
    return f", but not shown to be faster than {chain}, its equal in width"


def causes(view: View) -> list[str]:
    """A sentence a tree: whether it won or lost against its equal chain, and by what."""
    said = []
    for _, row in view.comparisons(EQUAL_WIDTH).iterrows():
        cause = _cause(row)
        if cause is None:
            continue
        names = view.title(row["candidate"]), view.title(row["reference"])
        first = cause.first_token
        said.append(
            f"{names[0]} {cause.said} against {names[1]}, by estimate: {row['speedup']:.2f} = "
            f"{cause.acceptance:.2f} (acceptance) × {cause.cost:.2f} (cost of a step) × "
            + ("" if first is None else f"{first:.2f} (time to first token) × ")
            + f"{cause.rest:.2f} (rest); verdict: {_verdict(row)}."
        )
    return said


def _cause(row: pd.Series) -> Cause | None:
    """The factors of a comparison; None where a ratio is missing."""
    speedup, acceptance, step = row[["speedup", "acceptance_ratio", "step_time_ratio"]]
    if pd.isna([speedup, acceptance, step]).any():
        return None
    first = row["first_token_factor"]
    return cause_of(speedup, acceptance, step, None if pd.isna(first) else first)


def causes_by_class(view: View) -> Grid:
    """Every tree's speed-up over its equal chain as a product, pooled and by class."""
    return Grid(
        "tab:causes",
        escape(
            "Where a tree's speed-up over the chain of equal width comes from, by estimate at the "
            "lowest concurrency: speed-up = acceptance × cost × first token × rest. Acceptance: "
            "tokens of a step, tree ÷ chain. Cost: time of a step, chain ÷ tree. First token: what "
            "the times to the first token make of the speed-up; under 1 the tree waits longer. "
            "Rest: time in no step, and other weights of prompts. Only the speed-up has an "
            f"interval ({view.confidence})."
        ),
        rf"L{{28mm}}{INTERVAL}rrrrL{{40mm}}",
        (
            (
                head("Class"),
                head("Speed-up", 3),
                *map(head, ("Acceptance", "Cost", "First token", "Rest", "Decided")),
            ),
        ),
        tuple(_cause_rows(view)),
    )


def _cause_rows(view: View) -> Iterator[Row]:
    for _, pair in view.comparisons(EQUAL_WIDTH).iterrows():
        yield group(f"{view.title(pair['candidate'])} against {view.title(pair['reference'])}", 9)
        for name in (*CLASSES, POOLED):
            row = view.comparison_of(pair, name)
            cause = None if row is None else _cause(row)
            if row is not None and cause is not None:
                factors = (cause.acceptance, cause.cost, cause.first_token, cause.rest)
                yield (
                    text("all five" if name == POOLED else name),
                    *interval(
                        column("comparisons", "speedup"),
                        *row[["speedup", "speedup_low", "speedup_high"]],
                    ),
                    *(number(column("comparisons", "first_token_factor"), f) for f in factors),
                    text(cause.said),
                )


def _verdict(row: pd.Series) -> str:
    return str(row["verdict"]).replace("_", " ")


def profile(view: View) -> list[str]:
    """What acceptance and step time alone would choose, a sentence each."""
    frame = lowest_concurrency(view.tables["cost"])
    known = frame[frame["step_time_s"].notna() & frame["acceptance_length"].notna()]
    if known.empty:
        return ["No step time was measured, so the profile chooses nothing."]
    steps = known["acceptance_length"] / known["step_time_s"]
    trees = known["algorithm"] == "DDTREE"
    said = f"By acceptance ÷ step time alone, {_fastest(view, known, steps)} would be chosen"
    if trees.sum() > 1:
        said += f"; of the trees, {_fastest(view, known[trees], steps[trees])}"
    return [f"{said}.", _drafting(view, known), *_budgets(view)]


def _drafting(view: View, known: pd.DataFrame) -> str:
    """What part of a step is drafting."""
    show = column("cost", "draft_share").show
    told = known[known["draft_share"].notna()]
    if told.empty:
        return "What part of a step is drafting, these engines do not tell."
    parts = (f"{view.title(r['server'])} {show(r['draft_share'])} %" for _, r in told.iterrows())
    return f"Drafting takes, of a step: {', '.join(parts)}."


def _budgets(view: View) -> Iterator[str]:
    """The budget that the profile predicts to be fastest for each tree, up to its own."""
    show = column("budgets", "predicted_speedup").show
    for server, rows in view.tables["budgets"].groupby("server", sort=False):
        best, own = rows.sort_values("predicted_speedup").iloc[-1], rows.iloc[-1]
        yield (
            f"Of the budgets from {rows['budget'].min():.0f} to {own['budget']:.0f} of "
            f"{view.title(str(server))} the profile would choose {best['budget']:.0f}: predicted "
            f"{show(best['predicted_speedup'])} over {view.baseline}, "
            f"{show(own['predicted_speedup'])} with {own['budget']:.0f} (estimates; a smaller tree "
            "is the beginning of a larger one, steps of other widths lie between measured ones)."
        )


def _fastest(view: View, frame: pd.DataFrame, speeds: pd.Series) -> str:
    place = int(speeds.to_numpy().argmax())
    server = str(frame["server"].iloc[place])
    return f"{view.title(server)} ({float(speeds.iloc[place]):.1f} tok/s)"


def trees(view: View) -> Grid:
    """How wide and deep the trees are, and whether they are trees at all."""
    names = ("nodes_per_step", "root_children", "deepest", "accepted_per_step", "deepest_accepted",
             "spine_share", "off_spine_share")  # fmt: skip
    return Grid(
        "tab:trees",
        escape(
            "Shape of the trees. Nodes: drafted in a step. Branches: children of the root. "
            "Deepest: depth of a node. Accepted: nodes accepted in a step, and the deepest one. "
            "Spine: nodes whose whole path is the drafter's first choice (%). Off first: accepted "
            "nodes that are not the first choice at their depth (%); no chain drafts them."
        ),
        r"L{26mm}rrrrrrrL{38mm}",
        (
            tuple(
                map(
                    head,
                    ("Tree", "Nodes", "Branches", "Deepest", "Accepted", "deepest", "Spine",
                     "Off first", "Shape"),
                )
            ),
        ),
        tuple(
            (
                text(view.title(row["server"])),
                *(number(column("trees", name), row[name]) for name in names),
                text(row["shape"]),
            )
            for _, row in view.tables["trees"].iterrows()
        ),
    )  # fmt: skip


def _near_tie(view: View) -> str:
    limits = view.tables["lossless"]["near_tie_nats"].dropna()
    return f"{max([view.config.analysis.near_tie_nats, *limits]):g}"


def _strays(view: View) -> str:
    strays = int(view.tables["lossless"]["stray_places"].sum())
    return f" {strays} recorded places are of other answers and left out." if strays else ""


def answers(view: View) -> Grid:
    """Unsound answers of every server, and whether its answers are faulty."""
    counts = ("near_ties", "regret_faults", "not_judged", "worst_regret_nats", "loops", "empty",
              "broken", "cut")  # fmt: skip
    return Grid(
        "tab:answers",
        escape(
            "First differences judged by regret, and answers that are unsound. Ties: near ties. "
            f"Faults: regret above {_near_tie(view)} nats, the configured limit or what "
            f"{view.baseline} regrets against itself, whichever is larger. Unjudged: the "
            "target's log probabilities were not recorded. Worst: largest regret (nats). Loops, "
            "empty, failed, cut: answers that run in a circle, have no text, failed their check, "
            f"or were ended by the token limit. Unsound: questions on which only {view.baseline} "
            "is sound / on which only the server is; longer: only the server is cut / only "
            f"{view.baseline}.{_strays(view)}"
        ),
        rf"L{{28mm}}{'r' * (len(counts) + 2)}L{{14mm}}",
        (
            tuple(
                map(
                    head,
                    ("Server", "Ties", "Faults", "Unjudged", "Worst", "Loops", "Empty", "Failed",
                     "Cut", "Unsound", "Longer", "Answers"),
                )
            ),
        ),
        tuple(
            (
                text(view.title(row["server"])),
                *(number(column("lossless", name), row[name]) for name in counts),
                text(f"{row['worse']:.0f}/{row['better']:.0f}"),
                text(f"{row['longer']:.0f}/{row['shorter']:.0f}"),
                _sound(row),
            )
            for _, row in view.tables["lossless"].iterrows()
        ),
    )  # fmt: skip


def _sound(row: pd.Series) -> Cell:
    return failed("faulty", 1) if row["verdict"] == "faulty" else text(row["verdict"])


def choice(view: View) -> Grid:
    """Trees judged on data that picked nothing."""
    frame = view.tables["choice"]
    rows = frame[frame["candidate"] != ""]
    return Grid(
        "tab:choice",
        escape(
            "Picked on one part of the data, judged on the other, then the parts swapped; at each "
            "number of conversations in flight by itself. "
            f"Picked: the fastest tree of the part that picks. Brackets: {view.confidence} "
            "intervals. n: prompts × rounds that judge."
        ),
        rf"rlL{{24mm}}lL{{38mm}}r{INTERVAL}",
        (
            (
                *map(head, ("In flight", "Split", "Tree", "Picked", "Against", "n")),
                head("Speed-up", 3),
            ),
        ),
        tuple(_choice_row(view, row) for _, row in rows.iterrows()),
    )


def _choice_row(view: View, row: pd.Series) -> Row:
    return (
        number(column("choice", "concurrency"), row["concurrency"]),
        text(row["split"]),
        text(view.title(row["candidate"])),
        text("yes" if row["picked"] == "true" else ""),
        text(f"{view.title(row['reference'])} ({row['relation']})"),
        text(f"{row['n_prompts']:.0f}×{row['n_launches']:.0f}"),
        *interval(column("choice", "speedup"), *row[["speedup", "speedup_low", "speedup_high"]]),
    )


def no_choice(view: View) -> list[str]:
    """Why nothing was chosen, once a reason."""
    frame = view.tables["choice"]
    reasons = frame[frame["candidate"] == ""]["detail"]
    if frame.empty:
        return ["No tree was measured: there is nothing to choose."]
    return [f"{reason}."[0].upper() + f"{reason}."[1:] for reason in dict.fromkeys(reasons)]


def latency(view: View) -> Grid:
    """Percentiles of the requests of the five classes at the lowest concurrency."""
    frame = lowest_concurrency(view.tables["latency"])
    pooled = frame[frame["workload_class"] == POOLED]
    return Grid(
        "tab:latency",
        escape(
            "Latency over the requests of the five classes, at the lowest concurrency. TTFT: time "
            "to first token, TPOT: time per token after it, Gap: time between two bursts, End: "
            "time to the last token. "
            f"Brackets: {view.confidence} intervals between order statistics, counting questions. "
            "Of times the 50th, 90th and 99th percentile, of the speed that one user sees the "
            "50th, 10th and 1st. n/a: too few questions for an order statistic on either side. "
            "n: requests / different questions."
        ),
        rf"L{{26mm}}lr{INTERVAL}{INTERVAL}{INTERVAL}",
        (
            (
                *map(head, ("Server", "Metric", "n")),
                *(head(name, 3) for name in ("median", "90 % (10 %)", "99 % (1 %)")),
            ),
        ),
        tuple(_latency_rows(view, pooled)),
    )


def _latency_rows(view: View, pooled: pd.DataFrame) -> Iterator[Row]:
    for (server, metric), rows in pooled.groupby(["server", "metric"], sort=False):
        name, unit, *_ = _METRICS[str(metric)]
        first = rows.iloc[0]
        yield (
            text(view.title(str(server))),
            text(f"{name} ({unit})"),
            text(f"{first['n']:.0f}/{first['n_questions']:.0f}"),
            *(cell for _, row in rows.iterrows() for cell in _percentile(row)),
        )


def _percentile(row: pd.Series) -> Row:
    *_, factor, decimals = _METRICS[row["metric"]]
    values = [row[name] * factor for name in ("value", "low", "high")]
    if values[0] != values[0]:
        return Cell(escape("n/a")), Cell(Tex("")), Cell(Tex(""))
    shown = [f"{value:.{decimals}f}" for value in values]
    return Cell(escape(shown[0])), Cell(escape(f"[{shown[1]},")), Cell(escape(f"{shown[2]}]"))


def goodput(view: View) -> Grid:
    """Requests within the stated limits."""
    limits = ", ".join(f"{n} ≤ {v:g} s" for n, v in view.config.analysis.limits.stated.items())
    return Grid(
        "tab:goodput",
        escape(f"Goodput: requests that keep every limit ({limits or 'none is stated'})."),
        rf"L{{30mm}}rr{INTERVAL}rr",
        (
            (
                *map(head, ("Server", "In flight", "n")),
                head("Within (%)", 3),
                head("Requests (1/s)"),
                head("Goodput (1/s)"),
            ),
        ),
        tuple(
            (
                text(view.title(row["server"])),
                number(column("goodput", "concurrency"), row["concurrency"]),
                number(column("goodput", "n"), row["n"]),
                *interval(column("goodput", "share"), *row[["share", "share_low", "share_high"]]),
                number(column("goodput", "requests_per_s"), row["requests_per_s"]),
                number(column("goodput", "goodput_per_s"), row["goodput_per_s"]),
            )
            for _, row in view.tables["goodput"].iterrows()
        ),
    )


def crossovers(view: View) -> list[str]:
    """Up to what load each server pays, a sentence each."""
    show = TABLES["crossover"].column("crossover").show
    said = []
    for _, row in view.tables["crossover"].iterrows():
        ends = [show(row[f"crossover_{end}"]) for end in ("low", "high")]
        known = ends != [NOT_MEASURED, NOT_MEASURED]
        within = f" [{ends[0]}, {ends[1]}]" if known else ""
        said.append(f"{view.title(row['server'])} {row['said']}{within}, over {row['classes']}.")
    return said


def power(figures: Mapping[str, Any] | None) -> str:
    """What simulation says of the verdicts; says so if it was not run."""
    if figures is None:
        return "How often such verdicts are wrong was not simulated for this version."
    covered = [100 * setting["coverage"] for setting in figures["settings"]]
    wrong = max(100 * setting["false_faster"] for setting in figures["settings"])
    sizes = "; ".join(setting["said"] for setting in figures["settings"])
    return (
        f"In {figures['runs']} simulated runs of each size ({sizes}), with drift, heavy-tailed "
        f"noise and a throttled launch, the {100 * figures['level']:g} % interval held the true "
        f"speed-up in {min(covered):.1f} to {max(covered):.1f} % of comparisons, and a server "
        f"that is not faster was called faster in at most {wrong:.1f} %."
    )
