"""Tables of the results."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ddtree_bench.charts.data import lowest_concurrency
from ddtree_bench.columns import NOT_MEASURED, POOLED
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
from ddtree_bench.report.summary import verdict_label
from ddtree_bench.report.tex import Tex, escape
from ddtree_bench.report.view import BASELINE, EQUAL_WIDTH, View, column

_CLASS_COLUMNS = (
    ("decode_tok_per_s", "Decode", "tok/s"),
    ("ttft_p50_s", "TTFT", "ms"),
    ("tpot_p50_s", "TPOT", "ms"),
    ("burst_gap_p50_s", "Gap", "ms"),
    ("end_p50_s", "End", "s"),
    ("step_time_s", "Step", "ms"),
    ("length_share", "Cut", "%"),
)
_NEAR_RANKS = 4
_NEAR_DEPTHS = 6


def classes(view: View) -> Grid:
    """Every server in every class at the lowest concurrency."""
    widths = 3 + len(_CLASS_COLUMNS) + 3
    found: list[Row] = []
    for name in CLASSES:
        found.append(group(name, widths))
        found += [_class_row(view, server, name) for server in view.config.servers]
    return Grid(
        "tab:classes",
        escape(
            f"Every class at the lowest concurrency; brackets: {view.confidence} intervals. "
            "n: prompts × launches. Speed: tokens ÷ time of an answer, prefill included, geometric "
            "mean. Decode: median speed after the first token. TTFT: time to first token, TPOT: "
            "time per token after it, Gap: time between two bursts, End: time to the last token, "
            "all medians over requests. Step: time of a verify step (plain decoding: of a token). "
            "Cut: answers ended by the token limit. Valid: answers that passed their check."
        ),
        rf"L{{27mm}}r{INTERVAL}{'r' * len(_CLASS_COLUMNS)}r",
        (
            (
                *(head("Server"), head("n"), head("Speed", 3)),
                *(head(name) for _, name, _ in _CLASS_COLUMNS),
                head("Valid"),
            ),
            (
                *(head(""), head(""), head("(tok/s)", 3)),
                *(head(f"({unit})") for *_, unit in _CLASS_COLUMNS),
                head(""),
            ),
        ),
        tuple(found),
    )


def _class_row(view: View, server: str, workload_class: str) -> Row:
    frame = lowest_concurrency(view.tables["classes"])
    here = (frame["server"] == server) & (frame["workload_class"] == workload_class)
    found = frame[here & frame["tok_per_s"].notna()]
    name = text(view.title(server))
    if found.empty:
        return name, failed(view.reason(server, workload_class), 5 + len(_CLASS_COLUMNS))
    row = found.iloc[0]
    return (
        name,
        text(f"{row['n_prompts']:.0f}×{row['n_launches']:.0f}"),
        *interval(
            column("classes", "tok_per_s"), *row[["tok_per_s", "tok_per_s_low", "tok_per_s_high"]]
        ),
        *(number(column("classes", key), row[key]) for key, *_ in _CLASS_COLUMNS),
        _valid(row),
    )


def _valid(row: pd.Series) -> Cell:
    if not row["checks"] > 0:
        return Cell(escape(NOT_MEASURED))
    return Cell(escape(f"{row['checks_valid']:.0f}/{row['checks']:.0f}"))


def comparisons(view: View, *, pooled: bool) -> Grid:
    """All comparisons: of the pooled classes with all tests, or of each class."""
    frame = lowest_concurrency(view.tables["comparisons"])
    wanted = frame["workload_class"] == POOLED
    data = frame[wanted if pooled else ~wanted]
    floor = column("comparisons", "noise_floor").show(_highest(data["noise_floor"]))
    return Grid(
        "tab:pairs" if pooled else "tab:pairs-by-class",
        escape(
            ("All comparisons, five classes pooled. " if pooled else "The comparisons by class. ")
            + f"Above 1 the first-named is faster; brackets: {view.confidence} intervals. n: "
            "prompts × launches. Of totals: ratio of all tokens ÷ all seconds, in which long "
            "answers weigh more. p: two-sided, adjusted by Holm's method. W/T/L: prompts won, "
            "tied within the margin, lost, with the p of their sign test. A/A floor, the ratio "
            f"that 95 % of pairs of launches of one server stay within: {floor}."
        ),
        rf"L{{42mm}}r{INTERVAL}rrrrL{{20mm}}",
        (
            (
                head("Pair" if pooled else "Class"),
                head("n"),
                head("Speed-up", 3),
                head("Of totals"),
                head("p (Holm)"),
                head("W/T/L"),
                head("p (sign)"),
                head("Verdict"),
            ),
        ),
        tuple(_comparison_rows(view, data, pooled)),
    )


def _comparison_rows(view: View, data: pd.DataFrame, pooled: bool) -> Iterator[Row]:
    """A row a pair, or the pair's name and a row a class."""
    named = ""
    order = data["relation"].map({BASELINE: 0, EQUAL_WIDTH: 1}).fillna(2)
    for _, row in data.iloc[order.argsort(kind="stable")].iterrows():
        names = f"{view.title(row['candidate'])} against {view.title(row['reference'])}"
        title = f"{names} ({row['relation']})"
        if not pooled and title != named:
            yield group(title, 10)
        named = title
        yield _comparison_row(title if pooled else row["workload_class"], row)


def _comparison_row(name: str, row: pd.Series) -> Row:
    counts = "/".join(f"{row[key]:.0f}" for key in ("wins", "ties", "losses"))
    return (
        text(name),
        text(f"{row['n_prompts']:.0f}×{row['n_launches']:.0f}"),
        *interval(
            column("comparisons", "speedup"), *row[["speedup", "speedup_low", "speedup_high"]]
        ),
        number(column("comparisons", "totals_ratio"), row["totals_ratio"]),
        number(column("comparisons", "p_holm"), row["p_holm"]),
        text(counts),
        number(column("comparisons", "sign_p"), row["sign_p"]),
        text(verdict_label(row["verdict"])),
    )


def _highest(values: pd.Series) -> float | None:
    known = values.dropna()
    return None if known.empty else float(known.max())


def acceptance(view: View) -> Grid:
    """Acceptance length by server and class, and pooled."""
    frame = lowest_concurrency(view.tables["classes"])
    drafting = [name for name, s in view.config.servers.items() if s.algorithm != "AR"]
    return Grid(
        "tab:acceptance",
        escape(
            "Acceptance length: tokens that a verify step yields, the bonus token included; "
            "Σ tokens ÷ Σ steps over the requests of the class, geometric mean of the classes in "
            "the last column. No interval: the speed-ups, which carry one, are what is judged."
        ),
        rf"L{{30mm}}{'r' * (len(CLASSES) + 1)}",
        (tuple(map(head, ("Server", *CLASSES, "pooled"))),),
        tuple(_acceptance_row(view, frame, server) for server in drafting),
    )


def _acceptance_row(view: View, frame: pd.DataFrame, server: str) -> Row:
    show = column("classes", "acceptance_length")
    mine = frame[frame["server"] == server].set_index("workload_class")["acceptance_length"]
    overall = view.overall(server)
    return (
        text(view.title(server)),
        *(number(show, mine.get(name)) for name in CLASSES),
        number(show, None if overall is None else overall["acceptance_length"]),
    )


def tree_shape(view: View) -> Grid:
    """Where the accepted nodes of each tree were: by depth and by the drafter's rank."""
    return Grid(
        "tab:shape",
        escape(
            "Accepted nodes of the trees by depth and by rank, as shares of all accepted nodes "
            "(%). Rank 0 is the drafter's first choice, the only one that a chain drafts; what "
            "lies at higher ranks is what the tree adds."
        ),
        rf"L{{26mm}}{'r' * (_NEAR_DEPTHS + 1 + _NEAR_RANKS + 1 + 1)}",
        (
            (head("Tree"), head("Accepted"), head("Depth", _NEAR_DEPTHS + 1),
             head("Rank", _NEAR_RANKS + 1)),
            (head(""), head("nodes"), *_ordinals(1, _NEAR_DEPTHS), *_ordinals(0, _NEAR_RANKS - 1)),
        ),
        tuple(_shape_row(view, server) for server in view.trees()),
    )  # fmt: skip


def _ordinals(first: int, last: int) -> Iterator[Cell]:
    yield from (head(str(value)) for value in range(first, last + 1))
    yield head(f"≥{last + 1}")


def _shape_row(view: View, server: str) -> Row:
    depths = _accepted(view.tables["depths"], server, "depth")
    ranks = _accepted(view.tables["ranks"], server, "rank")
    if depths.sum() + ranks.sum() == 0:
        return text(view.title(server)), failed("tree counters not reported", 13)
    return (
        text(view.title(server)),
        text(f"{depths.sum():.0f}"),
        *_shares(depths, 1, _NEAR_DEPTHS),
        *_shares(ranks, 0, _NEAR_RANKS - 1),
    )


def _accepted(frame: pd.DataFrame, server: str, key: str) -> pd.Series:
    return frame[frame["server"] == server].set_index(key)["accepted"]


def _shares(accepted: pd.Series, first: int, last: int) -> Iterator[Cell]:
    """Percent of all at each index from `first` to `last`, and beyond."""
    total = accepted.sum()
    parts = [accepted.get(index, 0.0) for index in range(first, last + 1)]
    for part in (*parts, accepted[accepted.index > last].sum()):
        yield Cell(escape(NOT_MEASURED if total == 0 else f"{100 * part / total:.1f}"))


def cost(view: View) -> Grid:
    """What a verify step costs on each server, and what part of it is drafting."""
    return Grid(
        "tab:cost",
        escape(
            "Cost of a step and what it yields, five classes pooled. Plain decoding: a step is a "
            "token. Drafting: from the bonus token to the finished chain or tree, by the engine's "
            f"own clock; a dash: the engine does not tell. Brackets: {view.confidence} intervals."
        ),
        rf"L{{30mm}}lrrr{INTERVAL}{INTERVAL}r",
        (
            (
                head("Server"),
                head("Algorithm"),
                head("Block"),
                head("Verified"),
                head("Accepted"),
                head("Step time (ms)", 3),
                head("Drafting (ms)", 3),
                head("of a step (%)"),
            ),
        ),
        tuple(_cost_row(view, server) for server in view.config.servers),
    )


def _cost_row(view: View, server: str) -> Row:
    frame = lowest_concurrency(view.tables["cost"])
    found = frame[(frame["server"] == server) & frame["tok_per_s"].notna()]
    if found.empty:
        return text(view.title(server)), failed(view.reason(server), 11)
    row = found.iloc[0]
    times = row[["step_time_s", "step_time_low_s", "step_time_high_s"]]
    drafting = row[["draft_time_s", "draft_time_low_s", "draft_time_high_s"]]
    return (
        text(view.title(server)),
        text(row["algorithm"]),
        *(
            number(column("cost", name), row[name])
            for name in ("block_size", "verify_width", "acceptance_length")
        ),
        *interval(column("cost", "step_time_s"), *times),
        *interval(column("cost", "draft_time_s"), *drafting),
        number(column("cost", "draft_share"), row["draft_share"]),
    )


def predictions(view: View) -> Grid:
    """Speed-up predicted from acceptance and step time beside the measured one."""
    return Grid(
        "tab:predicted",
        escape(
            f"Speed-up over {view.baseline} predicted as acceptance ratio ÷ step-time ratio, and "
            "measured. A gap is time outside of the steps: prefill, queueing, transport."
        ),
        rf"L{{30mm}}rrr{INTERVAL}",
        (
            (
                head("Server"),
                head("Acceptance ratio"),
                head("Step-time ratio"),
                head("Predicted"),
                head("Measured", 3),
            ),
        ),
        tuple(_predicted_row(view, row) for _, row in view.comparisons(BASELINE).iterrows()),
    )


def _predicted_row(view: View, row: pd.Series) -> Row:
    ratios = ("acceptance_ratio", "step_time_ratio", "predicted_speedup")
    return (
        text(view.title(row["candidate"])),
        *(number(column("comparisons", name), row[name]) for name in ratios),
        *interval(
            column("comparisons", "speedup"), *row[["speedup", "speedup_low", "speedup_high"]]
        ),
    )


def lossless(view: View) -> Grid:
    """Whether greedy answers are the baseline's, token by token."""
    names = ("compared", "identical", "share", "first_difference_median")
    frame = view.tables["lossless"]
    return Grid(
        "tab:lossless",
        escape(
            f"Greedy answers against those of {view.baseline}, token by token. The row of "
            f"{view.baseline} compares it with itself: what differs there is the floor. Equal: "
            "share of answers with the same tokens throughout. First difference: median of the "
            "equal tokens before it, over the answers that differ."
        ),
        r"L{30mm}rrrr",
        (tuple(map(head, ("Server", "Compared", "Identical", "Equal (%)", "First difference"))),),
        tuple(
            (
                text(view.title(row["server"])),
                *(number(column("lossless", n), row[n]) for n in names),
            )
            for _, row in frame.iterrows()
        ),
    )


def load(view: View) -> Grid:
    """Every server at every concurrency, the same classes at all of them."""
    names = ("tok_per_s_of_totals", "ttft_p50_s", "tpot_p50_s", "acceptance_length")
    frame = view.tables["load"]
    return Grid(
        "tab:load",
        escape(
            f"Load: conversations in flight, pooled over {_load_classes(view)}"
            f"{_unfilled(view)}. Throughput: tokens "
            "of all conversations ÷ time of the cells. TTFT, TPOT: time to first token, and per "
            "token after it. Accepted: tokens that a verify step yields."
        ),
        rf"L{{30mm}}r{INTERVAL}rrrr",
        (
            (
                head("Server"),
                head("In flight"),
                head("Speed (tok/s)", 3),
                head("Throughput (tok/s)"),
                head("TTFT (ms)"),
                head("TPOT (ms)"),
                head("Accepted"),
            ),
        ),
        tuple(
            (
                text(view.title(row["server"])),
                number(column("load", "concurrency"), row["concurrency"]),
                *interval(
                    column("load", "tok_per_s"),
                    *row[["tok_per_s", "tok_per_s_low", "tok_per_s_high"]],
                ),
                *(number(column("load", name), row[name]) for name in names),
            )
            for _, row in frame.iterrows()
        ),
    )


def _unfilled(view: View) -> str:
    """The loads that the prompts did not fill, after a semicolon; empty if all are filled."""
    unfilled = (load for load in view.concurrencies if not view.is_filled(load))
    return "".join(f"; {view.in_flight(load)}" for load in unfilled)


def _load_classes(view: View) -> str:
    """The classes that every server has at each of its concurrencies, or what each has."""
    found = dict(view.tables["load"][["server", "classes"]].drop_duplicates().to_numpy())
    if len(set(found.values())) < 2:
        return next(iter(found.values()), "no class")
    each = "; ".join(f"{view.title(server)}: {names}" for server, names in found.items())
    return f"the classes that a server has at each of its concurrencies ({each})"


def arrivals(view: View) -> Grid:
    """Times to the end where requests arrive by themselves: of service, and from due."""
    frame = view.tables["arrivals"]
    ends = frame[frame["metric"].isin(["end_s", "end_due_s"]) & (frame["share"] < 0.99)]
    rate, served = (column("arrivals", name) for name in ("arrivals_per_s", "served_per_s"))
    return Grid(
        "tab:arrivals",
        escape(
            "Open loop: conversations arrive at random (Poisson), however many are in flight. "
            "Arrivals and served: a second. Times to the end of an answer in seconds, from sent "
            f"(service) and from due, median and 90th percentile; brackets: {view.confidence} "
            "intervals as for latency. n: requests / different questions. These cells enter no "
            "other figure."
        ),
        rf"L{{26mm}}L{{18mm}}rrlr{INTERVAL}{INTERVAL}",
        (
            (
                *map(head, ("Server", "Workload", "Arrivals", "Served", "Time", "n")),
                head("median", 3),
                head("90 %", 3),
            ),
        ),
        tuple(
            (
                text(view.title(str(server))),
                text(workload),
                number(rate, rows["arrivals_per_s"].iloc[0]),
                number(served, rows["served_per_s"].iloc[0]),
                text("from due" if metric == "end_due_s" else "service"),
                text(f"{rows['n'].iloc[0]:.0f}/{rows['n_questions'].iloc[0]:.0f}"),
                *(
                    cell
                    for _, row in rows.iterrows()
                    for cell in interval(
                        column("arrivals", "value"), *row[["value", "low", "high"]]
                    )
                ),
            )
            for (server, workload, _, metric), rows in ends.groupby(
                ["server", "workload", "arrivals_per_s", "metric"], sort=False
            )
        ),
    )


def original(view: View) -> Grid:
    """The three original prompts in this run."""
    names = ("n", "tok_per_s", "tok_per_s_sd", "completion_tokens")
    return Grid(
        "tab:original",
        escape(
            "The three prompts of the original notes in this run, by the notes' own formula: mean "
            "over repeats of completion tokens ÷ time to the end of the answer, prefill included. "
            "SD: between repeats."
        ),
        r"L{30mm}lrrrr",
        (tuple(map(head, ("Server", "Prompt", "n", "Speed (tok/s)", "SD", "Tokens out"))),),
        tuple(
            (
                text(view.title(row["server"])),
                text(row["prompt_id"]),
                *(number(column("original", name), row[name]) for name in names),
            )
            for _, row in view.tables["original"].iterrows()
        ),
    )


def published(view: View) -> Grid:
    """What was published for the three prompts."""
    names = ("source", "system", "config", "prompt_id")
    speed = column("original", "tok_per_s")
    return Grid(
        "tab:published",
        escape(
            "Published figures for the same prompts: another model on another machine, without "
            "intervals. They show what the claim was and are compared with nothing here."
        ),
        r"L{35mm}L{45mm}L{28mm}lr",
        (tuple(map(head, ("Source", "System", "Configuration", "Prompt", "Speed (tok/s)"))),),
        tuple(
            (*(text(row[name]) for name in names), number(speed, row["tok_per_s"]))
            for _, row in view.tables["published"].iterrows()
        ),
    )


def fastest(view: View) -> Tex:
    """Caption of the throughput figure: which server is fastest in how many classes."""
    frame = lowest_concurrency(view.tables["classes"])
    frame = frame[frame["workload_class"].isin(CLASSES) & frame["tok_per_s"].notna()]
    if frame.empty:
        return escape("Speed by class: nothing was measured.")
    winners = frame.loc[frame.groupby("workload_class")["tok_per_s"].idxmax(), "server"]
    counts = winners.value_counts()
    said = ", ".join(f"{view.title(name)} in {count}" for name, count in counts.items())
    return escape(
        f"Speed by class: highest estimate of {len(winners)} classes: {said}. Bars: "
        f"{view.confidence} intervals over prompts and launches; they tell a server's level, not "
        "the difference of two, which is paired. An arrow: the "
        "interval goes on. A cross on the axis: not measured."
    )


def most_accepted(view: View) -> Tex:
    """Caption of the acceptance figure: which server's verify steps yield most."""
    frame = lowest_concurrency(view.tables["overall"])
    frame = frame[frame["acceptance_length"].notna()]
    said = "Acceptance length by class: tokens that a verify step yields. "
    if not frame.empty:
        best = frame.sort_values("acceptance_length").iloc[-1]
        shown = column("overall", "acceptance_length").show(best["acceptance_length"])
        said += f"Highest pooled value: {view.title(best['server'])}, {shown}. "
    return escape(said + "A cross on the axis: not measured.")
