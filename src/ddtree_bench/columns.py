"""The catalogue of all tables: each column's name, unit, header, formula and decimals.

CSV headers, chart axes, TeX tables and the data dictionary are made from it. CSV files hold base
units (seconds); `shown_unit` is what people read. An empty CSV cell means not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

Kind = Literal["text", "count", "number", "flag"]

NOT_MEASURED: Final = "–"
"""How a missing value is shown."""

POOLED: Final = "all"
"""Stands for the five classes together where a class is named."""

_SCALE: Final = {("s", "ms"): 1000.0, ("1", "%"): 100.0}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    header: str
    formula: str
    """How the value comes about, or what it says."""
    kind: Kind = "text"
    unit: str = ""
    """In the CSV; "1" for a ratio or share."""
    shown_unit: str = ""
    """Where people read it; default: `unit`."""
    decimals: int = 0
    """Where people read it."""
    least_n: int = 0
    """Fewest values that it needs; with fewer it stays empty."""

    @property
    def label(self) -> str:
        """Header with the unit that people read, for axes and table heads."""
        unit = self.shown_unit or self.unit
        return self.header if unit in ("", "1") else f"{self.header} ({unit})"

    def scaled(self, value: float) -> float:
        """The value in the unit that people read."""
        return value * _SCALE.get((self.unit, self.shown_unit), 1.0)

    def show(self, value: object) -> str:
        """The value as people read it, without its unit; a dash where nothing was measured.

        >>> TABLES["requests"].column("ttft_s").show(0.0123)
        '12.3'
        """
        if value is None or value != value:  # NaN is pandas' empty cell
            return NOT_MEASURED
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.kind in ("count", "number") and isinstance(value, (int, float)):
            return f"{self.scaled(float(value)):.{self.decimals}f}" if math.isfinite(value) else "∞"
        return str(value)


@dataclass(frozen=True, slots=True)
class Table:
    """One CSV file: what a row is, its columns, and the columns that order its rows."""

    name: str
    row: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in file order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """The column with this name; KeyError names the table if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name}")


def _text(name: str, header: str, formula: str) -> Column:
    return Column(name, header, formula)


def _flag(name: str, header: str, formula: str) -> Column:
    return Column(name, header, formula, "flag")


def _count(name: str, header: str, formula: str, unit: str = "") -> Column:
    return Column(name, header, formula, "count", unit)


def _ms(name: str, header: str, formula: str, decimals: int = 1, least_n: int = 1) -> Column:
    return Column(name, header, formula, "number", "s", "ms", decimals, least_n)


def _seconds(name: str, header: str, formula: str, decimals: int = 2) -> Column:
    return Column(name, header, formula, "number", "s", decimals=decimals, least_n=1)


def _speed(name: str, header: str, formula: str, least_n: int = 1) -> Column:
    return Column(name, header, formula, "number", "tok/s", decimals=1, least_n=least_n)


def _ratio(name: str, header: str, formula: str, decimals: int = 2, least_n: int = 1) -> Column:
    return Column(name, header, formula, "number", "1", decimals=decimals, least_n=least_n)


def _mean_tokens(name: str, header: str, formula: str, decimals: int = 0) -> Column:
    return Column(name, header, formula, "number", "tok", decimals=decimals, least_n=1)


def _share(name: str, header: str, formula: str) -> Column:
    return Column(name, header, formula, "number", "1", "%", 1, 1)


def _named(columns: Iterable[Column], **formulas: str) -> tuple[Column, ...]:
    """The columns, some with another formula."""
    return tuple(
        replace(column, formula=formulas.get(column.name, column.formula)) for column in columns
    )


SERVER = _text("server", "Server", "key under `servers` in the configuration")
LAUNCH = _count("launch", "Launch", "counts a server's launches from 1; the number of its round")
WORKLOAD = _text("workload", "Workload", "key under `workloads` in the configuration")
WORKLOAD_CLASS = _text("workload_class", "Class", "workload class")
CLASS_OR_ALL = _text(
    "workload_class", "Class", f"workload class, or `{POOLED}` for the five, each weighing the same"
)
CONCURRENCY = _count("concurrency", "In flight", "conversations in flight at once")
REPEAT = _count("repeat", "Repeat", "pass over the prompts within a launch, from 1")
CELL_KEYS: Final = (SERVER, LAUNCH, WORKLOAD, WORKLOAD_CLASS, CONCURRENCY, REPEAT)
PROMPT = _text("prompt_id", "Prompt", "id in the prompt file")
PROMPT_SHA = _text(
    "prompt_sha256",
    "Prompt hash",
    "SHA-256 of the rendered prompt; of a unit's first prompt, or of those of all its turns where "
    "recorded replies are replayed",
)
STATUS = _text("status", "Status", "code of how it ended")
SENTENCE = _text("sentence", "What happened", "the status in words")
DETAIL = _text("detail", "Detail", "what exactly, as recorded")
COMPLETION = _count(
    "completion_tokens",
    "Tokens out",
    "tokens generated, as the server counts, none past the stop token",
    "tok",
)
VERIFY_STEPS = _count(
    "verify_steps", "Verify steps", "passes of the target that verified drafts; empty for AR"
)
ACCEPTED = _count("accepted_drafts", "Accepted drafts", "drafted tokens accepted", "tok")
ACCEPTANCE = _ratio(
    "acceptance_length",
    "Acceptance length",
    "(accepted drafts + verify steps) ÷ verify steps, the bonus token included; "
    "empty for AR, whose steps give one token by definition",
)
STEP_TIME = _ms(
    "step_time_s",
    "Step time",
    "(last event − first event) ÷ verify steps after the first event; AR: ÷ tokens after it; "
    "empty if the first event carries more than one token or tokens were cut",
    decimals=2,
)
DRAFT_TIME = _ms(
    "draft_time_s",
    "Drafting",
    "seconds of drafting ÷ verify steps, by the engine's own clock; empty where it does not tell",
    decimals=2,
)
CHECKS = _count("checks", "Checked", "requests whose answer has a check")
CHECKS_VALID = _count("checks_valid", "Valid", "requests whose answer passed its check")
FAILED_REQUESTS = _count("failed_requests", "Failed", "requests that did not end ok")
N_PROMPTS = _count("n_prompts", "Prompts", "prompt units that enter")
N_LAUNCHES = _count("n_launches", "Launches", "launches that enter")
TOK_PER_S = _speed(
    "tok_per_s",
    "Speed",
    "1 ÷ geometric mean over prompt units of seconds per token, a unit's logarithm averaged "
    "over launches and repeats first",
)
TOK_PER_S_LOW = _speed("tok_per_s_low", "Low", "lower end of the interval of tok_per_s", 2)
TOK_PER_S_HIGH = _speed("tok_per_s_high", "High", "upper end of the interval of tok_per_s", 2)

REQUESTS = Table(
    "requests",
    "a request",
    (
        *CELL_KEYS,
        PROMPT,
        _count("turn", "Turn", "0 for the first request of a conversation or tool loop"),
        PROMPT_SHA,
        STATUS,
        DETAIL,
        _count("prompt_tokens", "Tokens in", "prompt tokens, as the server counts", "tok"),
        COMPLETION,
        _count("overshoot_tokens", "Overshoot", "tokens sent past the stop token, cut", "tok"),
        _count("cached_tokens", "Cached", "prompt tokens served from the prefix cache", "tok"),
        _text("finish_reason", "Ended by", "`stop` or `length`, as the server says"),
        _ms("ttft_s", "Time to first token", "first event with tokens − sent"),
        _ms(
            "tpot_s",
            "Time per token",
            "(last event − first event) ÷ tokens after the first event",
            2,
        ),
        _ms("burst_gap_s", "Burst gap", "median time between two events in a row"),
        _speed(
            "decode_tok_per_s",
            "Decode speed",
            "tokens after the first event ÷ (last event − first event); "
            "empty if one event carries all",
        ),
        _seconds("end_s", "Time to end", "last byte of the answer − sent"),
        _speed("tok_per_s", "Speed", "completion tokens ÷ end_s"),
        _count("events", "Events", "messages of the stream that carried tokens"),
        VERIFY_STEPS,
        ACCEPTED,
        ACCEPTANCE,
        STEP_TIME,
        DRAFT_TIME,
        _count("verify_width", "Verified", "tokens the target verifies in a step", "tok"),
        _text("check_kind", "Check", "what the answer was checked for"),
        _flag("check_valid", "Valid", "whether it passed"),
    ),
    ("server", "launch", "workload", "concurrency", "repeat", "prompt_id", "turn"),
)

UNITS = Table(
    "units",
    "a prompt unit (a prompt, a conversation, a tool loop) of an ok cell",
    (
        *CELL_KEYS,
        PROMPT,
        PROMPT_SHA,
        _count("requests", "Requests", "requests of the unit"),
        COMPLETION,
        _seconds("seconds", "Seconds", "Σ end_s of its requests"),
        _ms("s_per_token", "Seconds per token", "seconds ÷ completion tokens", 2),
        _ms(
            "decode_s_per_token",
            "After the first token",
            "Σ (end_s − ttft_s) of its requests ÷ completion tokens",
            2,
        ),
        VERIFY_STEPS,
        ACCEPTED,
    ),
    ("server", "launch", "workload", "concurrency", "repeat", "prompt_id", "prompt_sha256"),
)

CELLS = Table(
    "cells",
    "a cell: a workload on one launch of a server at one concurrency, one repeat",
    (
        *CELL_KEYS,
        _count("round", "Round", "round of the schedule"),
        STATUS,
        SENTENCE,
        DETAIL,
        _count("requests", "Requests", "requests sent"),
        FAILED_REQUESTS,
        COMPLETION,
        _seconds("seconds", "Seconds", "end of the last answer − first request sent"),
        _speed("tok_per_s", "Throughput", "completion tokens ÷ seconds, all in flight together"),
        _ratio(
            "mean_in_flight",
            "Mean in flight",
            "Σ end_s of its requests ÷ seconds: requests in flight, averaged over the cell's time",
            1,
        ),
        _count("max_in_flight", "Most in flight", "most of its requests in flight at any time"),
        ACCEPTANCE,
        Column("started_unix_s", "Started", "seconds since 1970, UTC", "number", "s", decimals=0),
        _share("client_cpu_share", "Client CPU", "CPU seconds of the client ÷ wall seconds"),
        _ms(
            "client_lag_s",
            "Client lag",
            "lateness of a thread of the client that did nothing but wake up; 99 % were not later",
        ),
        CHECKS,
        CHECKS_VALID,
        _count("overshoot_tokens", "Overshoot", "tokens sent past stop tokens, cut", "tok"),
        Column(
            "joules_per_token",
            "Energy",
            "Σ energy of the GPUs during the cell ÷ completion tokens",
            "number",
            "J/tok",
            decimals=2,
            least_n=1,
        ),
        _text("flags", "Flags", "codes of what may have changed the speed, see findings"),
    ),
    ("server", "launch", "workload", "concurrency", "repeat"),
)

_SUMMARY = (
    N_PROMPTS,
    N_LAUNCHES,
    _count("n_requests", "Requests", "requests that enter"),
    TOK_PER_S,
    TOK_PER_S_LOW,
    TOK_PER_S_HIGH,
    _speed("tok_per_s_of_totals", "Throughput", "Σ completion tokens ÷ Σ seconds of the cells"),
    _speed("decode_tok_per_s", "Decode speed", "median over requests of decode_tok_per_s"),
    _ms("ttft_p50_s", "Time to first token", "median over requests of ttft_s"),
    _ms("tpot_p50_s", "Time per token", "median over requests of tpot_s", 2),
    _ms("burst_gap_p50_s", "Burst gap", "median over requests of burst_gap_s"),
    _seconds("end_p50_s", "Time to end", "median over requests of end_s"),
    replace(
        ACCEPTANCE,
        formula="Σ (accepted drafts + verify steps) ÷ Σ verify steps, over the prompts of "
        "tok_per_s; not for AR",
    ),
    replace(STEP_TIME, formula="geometric mean over prompts of step_time_s, launches averaged"),
    CHECKS,
    CHECKS_VALID,
    _share("length_share", "Cut", "requests ended by the token limit ÷ requests"),
    FAILED_REQUESTS,
)

CLASSES = Table(
    "classes",
    "a server, class and concurrency; ok cells only, failed requests counted beside",
    (SERVER, WORKLOAD_CLASS, CONCURRENCY, *_SUMMARY),
    ("server", "workload_class", "concurrency"),
)

OVERALL = Table(
    "overall",
    "a server and concurrency, the five classes pooled with equal weight (class `original` is out)",
    (
        SERVER,
        CONCURRENCY,
        _count("n_classes", "Classes", "classes that enter; fewer than five is no full figure"),
        *_named(
            _SUMMARY,
            tok_per_s="geometric mean of the classes' tok_per_s",
            decode_tok_per_s="geometric mean of the classes' medians",
            ttft_p50_s="geometric mean of the classes' medians",
            tpot_p50_s="geometric mean of the classes' medians",
            burst_gap_p50_s="geometric mean of the classes' medians",
            end_p50_s="geometric mean of the classes' medians",
            acceptance_length="geometric mean of the classes' acceptance lengths; not for AR",
            step_time_s="geometric mean of the classes' step times",
            length_share="mean of the classes' shares",
        ),
    ),
    ("server", "concurrency"),
)

COMPARISONS = Table(
    "comparisons",
    "a candidate against a reference in one relation, class and concurrency",
    (
        _text("candidate", "Server", "the server that is judged"),
        _text("reference", "Against", "the server that it is compared with"),
        _text(
            "relation",
            "Relation",
            "`baseline`: against plain decoding; `equal width`: a tree against the chain that "
            "verifies as many tokens under the same flags; `chain`: a tree against any other "
            "chain; `planned`: any other pair that `analysis.against` names",
        ),
        CLASS_OR_ALL,
        CONCURRENCY,
        _text("classes", "Classes", "the classes that enter"),
        replace(N_PROMPTS, formula="prompt units measured on both sides"),
        replace(N_LAUNCHES, formula="rounds measured on both sides"),
        _ratio(
            "speedup",
            "Speed-up",
            "exp of the mean over classes of the mean over prompts of "
            "ln(reference seconds per token ÷ candidate seconds per token)",
        ),
        _ratio("speedup_low", "Low", "lower end of the interval of speedup", least_n=2),
        _ratio("speedup_high", "High", "upper end of the interval of speedup", least_n=2),
        _ratio(
            "totals_ratio",
            "Of totals",
            "ratio of tok_per_s_of_totals: long answers weigh more, all cells of both sides count",
        ),
        _ratio("p_value", "p", "two-sided, of no difference, from the interval's t", 4, 2),
        _ratio(
            "p_holm",
            "p (Holm)",
            "p_value adjusted for its family: all planned comparisons that are pooled, or all of "
            "single classes; empty: not planned",
            4,
            2,
        ),
        _count("wins", "Wins", "prompts on which the candidate is faster by more than the margin"),
        _count("ties", "Ties", "prompts within the margin"),
        _count("losses", "Losses", "prompts on which it is slower by more than the margin"),
        _ratio("sign_p", "p (sign)", "sign test of wins against losses, two-sided", 4),
        _ratio(
            "noise_floor",
            "A/A floor",
            "the ratio that 95 % of pairs of single launches of one server stay within, variance "
            "between launches pooled over all servers; it is shown and judges nothing",
            3,
            2,
        ),
        _ratio("acceptance_ratio", "Acceptance ratio", "acceptance, candidate ÷ reference (AR: 1)"),
        _ratio("step_time_ratio", "Step ratio", "step time, candidate ÷ reference"),
        _ratio("predicted_speedup", "Predicted", "acceptance_ratio ÷ step_time_ratio"),
        _ratio(
            "first_token_factor",
            "First token",
            "speedup ÷ the speed-up by decode_s_per_token of the same prompts and launches: what "
            "the times to the first token make of it; empty where they hold all the time",
        ),
        _text("verdict", "Verdict", "code of the verdict"),
        _text("verdict_detail", "Why", "the verdict in words, with what limits it"),
    ),
    ("candidate", "reference", "relation", "workload_class", "concurrency"),
)

LOAD = Table(
    "load",
    "a server and concurrency, where it was measured at several; the same classes at all of them",
    (
        *(column for column in OVERALL.columns if column.name != "n_classes"),
        _text(
            "classes", "Classes", "the classes that enter: those it has at all of its concurrencies"
        ),
    ),
    ("server", "concurrency"),
)

HISTOGRAM = Table(
    "histogram",
    "a server, class and number of accepted drafts",
    (
        SERVER,
        CLASS_OR_ALL,
        _count("accepted_drafts", "Accepted drafts", "drafts accepted in one verify step", "tok"),
        _count("steps", "Steps", "verify steps that accepted so many"),
        _share("share", "Share", "steps ÷ all verify steps of server and class"),
    ),
    ("server", "workload_class", "accepted_drafts"),
)

DEPTHS = Table(
    "depths",
    "a tree server and depth, the five classes summed",
    (
        SERVER,
        _count("depth", "Depth", "distance from the root, from 1"),
        _count("nodes", "Nodes", "drafted nodes at this depth, all verify steps"),
        _count("accepted", "Accepted", "accepted nodes at this depth"),
    ),
    ("server", "depth"),
)

RANKS = Table(
    "ranks",
    "a tree server and rank, the five classes summed",
    (
        SERVER,
        _count("rank", "Rank", "the drafter's choice at that depth; 0 is what a chain drafts"),
        _count("accepted", "Accepted", "accepted nodes of this rank"),
    ),
    ("server", "rank"),
)

COST = Table(
    "cost",
    "a server, at the lowest concurrency measured, the five classes pooled with equal weight",
    (
        SERVER,
        CONCURRENCY,
        _text("algorithm", "Algorithm", "as configured"),
        _count("verify_width", "Verified", "tokens the target verifies in a step", "tok"),
        _count("block_size", "Block", "tokens a draft block holds, the bonus token included"),
        replace(STEP_TIME, formula="geometric mean of the classes' step times; AR: per token"),
        _ms("step_time_low_s", "Low", "lower end of the interval of step_time_s", 2, 2),
        _ms("step_time_high_s", "High", "upper end of the interval of step_time_s", 2, 2),
        replace(DRAFT_TIME, formula="geometric mean of the classes' draft_time_s; empty: not told"),
        _ms("draft_time_low_s", "Low", "lower end of the interval of draft_time_s", 2, 2),
        _ms("draft_time_high_s", "High", "upper end of the interval of draft_time_s", 2, 2),
        _share("draft_share", "Drafting", "draft_time_s ÷ step_time_s"),
        replace(ACCEPTANCE, formula="geometric mean of the classes' acceptance lengths; AR: 1"),
        TOK_PER_S,
    ),
    ("server", "concurrency"),
)

BUDGETS = Table(
    "budgets",
    "a tree server and a budget up to its own, at the lowest concurrency; a prediction",
    (
        SERVER,
        _count("budget", "Budget", "nodes of the tree besides its root"),
        _ratio(
            "acceptance_length",
            "Acceptance length",
            "1 + accepted nodes among the first so many in the order in which trees grew ÷ verify "
            "steps; the five classes summed, at the steps that the server's own budget took",
        ),
        _ms(
            "step_time_s",
            "Step time",
            "draft_time_s of the server + time of a step without drafting, taken as linear between "
            "the widths that servers of its model were measured at",
            2,
        ),
        _ratio(
            "predicted_speedup",
            "Predicted",
            "acceptance_length × step time of the baseline ÷ step_time_s",
        ),
    ),
    ("server", "budget"),
)

LOSSLESS = Table(
    "lossless",
    "a server; greedy answers against the baseline's first answer to the same rendered prompt",
    (
        SERVER,
        _count("compared", "Compared", "answers at temperature 0 with token ids on both sides"),
        _count("identical", "Identical", "answers with the same token ids throughout"),
        _share("share", "Share", "identical ÷ compared; the baseline's row is its own floor"),
        Column(
            "first_difference_median",
            "First difference",
            "median, over answers that differ, of the tokens before the first difference",
            "number",
            "tok",
            decimals=0,
            least_n=1,
        ),
        _count(
            "near_ties",
            "Near ties",
            "first differences whose regret is at most near_tie_nats: rounding decided",
        ),
        _count("regret_faults", "Regret faults", "first differences whose regret is larger"),
        _count(
            "not_judged",
            "Not judged",
            "first differences at which the target's log probabilities were not recorded",
        ),
        _count(
            "stray_places",
            "Strays",
            "recorded places of another answer than the one compared with, left out; the "
            "baseline's row only",
        ),
        Column(
            "worst_regret_nats",
            "Worst regret",
            "largest regret: log p(first choice) − log p(emitted) under the target on the common "
            "prefix; a lower bound where the emitted token was not recorded",
            "number",
            "nats",
            decimals=3,
            least_n=1,
        ),
        Column(
            "near_tie_nats",
            "Near tie",
            "`analysis.near_tie_nats`, or the largest regret of the baseline against itself",
            "number",
            "nats",
            decimals=3,
        ),
        _count(
            "loops", "Loops", "answers with a phrase of up to 32 tokens 4 times in a row or more"
        ),
        _count("empty", "Empty", "answers without text"),
        _count("broken", "Broken", "answers that failed the check of their prompt"),
        _count("worse", "Worse", "questions on which only the baseline's first answer is sound"),
        _count("better", "Better", "questions on which only this server's first answer is sound"),
        _count("cut", "Cut", "answers ended by the token limit"),
        _count("longer", "Longer", "questions on which only this server's first answer is cut"),
        _count("shorter", "Shorter", "questions on which only the baseline's first answer is cut"),
        _text(
            "verdict",
            "Answers",
            "`faulty`: a regret fault, or significantly more `worse` than `better` or `longer` "
            "than `shorter`; else `sound`",
        ),
        _text("verdict_detail", "Why", "what the verdict rests on"),
    ),
    ("server",),
)

DRAWS = Table(
    "draws",
    "a server, workload with `draws` and prompt; its answers against the baseline's to it",
    (
        SERVER,
        WORKLOAD,
        _text("prompt_id", "Prompt", f"id in the prompt file, or `{POOLED}` for all prompts"),
        _count("n", "Draws", "answers drawn; the baseline's row: the first half of its draws"),
        _count("n_reference", "Baseline's", "the baseline's draws; its row: the second half"),
        _count("answers", "Different", "different answers among the draws"),
        _count("answers_reference", "Baseline's", "different answers among the baseline's"),
        _count(
            "prefixes",
            "Prefixes",
            "prefixes (prompt and first tokens) that both sides reached often enough for a test",
        ),
        _count("tokens", "Tokens", "tokens drawn after those prefixes, both sides", "tok"),
        _ratio("chi_square", "χ²", "Pearson's, of two samples; summed over the prefixes", 1),
        _count("df", "df", "its degrees of freedom"),
        _ratio("p_value", "p", "chance of so large a χ² if both draw from one distribution", 4),
        _ratio("p_holm", "p (Holm)", "p_value adjusted for all rows of this table", 4),
        _text(
            "verdict",
            "Sampler",
            "`differs`: p_holm is under the level; `does not sample`: no answer varies, the "
            "baseline's neither; `same`, `not compared`",
        ),
        _text("verdict_detail", "Why", "why there is no test"),
    ),
    ("server", "workload", "prompt_id"),
)

TREES = Table(
    "trees",
    "a tree server, the five classes summed",
    (
        SERVER,
        _count("steps", "Steps", "verify steps"),
        _ratio("nodes_per_step", "Nodes", "drafted nodes ÷ steps, the root not counted"),
        _ratio(
            "root_children", "Branches", "nodes at depth 1 ÷ steps: how the tree branches first"
        ),
        _count("deepest", "Deepest", "largest depth with a drafted node"),
        _count("deepest_accepted", "Deepest accepted", "largest depth with an accepted node"),
        _ratio("accepted_per_step", "Depth accepted", "accepted nodes ÷ steps"),
        _share(
            "spine_share", "Spine", "nodes whose whole path is the drafter's first choice ÷ nodes"
        ),
        _share("off_spine_share", "Off first", "accepted nodes of rank 1 or more ÷ accepted nodes"),
        _text("shape", "Shape", "`a tree`, or why it is a chain"),
    ),
    ("server",),
)

CHOICE = Table(
    "choice",
    "a tree against an opponent, on the part of the data on which nothing was picked",
    (
        CONCURRENCY,
        _text(
            "split",
            "Split",
            "`first`: picked on the first half of the prompts in the odd rounds, judged on the "
            "other half in the even ones; `second`: the other way round; `both`: no choice",
        ),
        _text("candidate", "Server", "the tree; empty where no choice was made"),
        _flag("picked", "Picked", "whether it is the fastest tree of the part that picks"),
        _count("picked_on", "Picked on", "prompts that picked"),
        _text(
            "relation", "Relation", "`baseline`, `equal width` or `best chain` (picked likewise)"
        ),
        _text("reference", "Against", "the opponent"),
        replace(N_PROMPTS, formula="prompts that judge"),
        replace(N_LAUNCHES, formula="rounds that judge"),
        _ratio("speedup", "Speed-up", "as in comparisons, on the part that judges"),
        _ratio("speedup_low", "Low", "lower end of its interval", least_n=2),
        _ratio("speedup_high", "High", "upper end of its interval", least_n=2),
        _text("detail", "Detail", "why there is no choice or no interval"),
    ),
    ("concurrency", "split"),
)

LATENCY = Table(
    "latency",
    "a percentile of a server, class and concurrency; requests of ok cells",
    (
        SERVER,
        CLASS_OR_ALL,
        CONCURRENCY,
        _text(
            "metric",
            "Metric",
            "column of requests: `ttft_s`, `tpot_s`, `burst_gap_s`, `end_s` (seconds) or "
            "`tok_per_s` (speed that one user sees)",
        ),
        _ratio("share", "Share", "0.99: the 99th percentile; of a speed 0.01 is the bad end"),
        _count("n", "n", "requests with a value"),
        _count("n_questions", "Questions", "different prompts and turns among them"),
        _ratio(
            "value",
            "Value",
            "smallest value that this share does not exceed; empty with too few questions",
            4,
        ),
        _ratio("low", "Low", "lower end: an order statistic by the binomial distribution", 4),
        _ratio("high", "High", "upper end; both count questions, not requests", 4),
        _text("note", "Note", "why there is no value"),
    ),
    ("server", "workload_class", "concurrency"),
)

ARRIVALS = Table(
    "arrivals",
    "a percentile of a server, workload and rate of arrivals (open loop); requests of ok cells",
    (
        SERVER,
        _text("workload", "Workload", "name of the workload"),
        Column("arrivals_per_s", "Arrivals", "conversations that arrive, mean rate", "number",
               "1/s", decimals=2, least_n=1),
        Column("served_per_s", "Served", "requests ÷ seconds from the first sent to the last end",
               "number", "1/s", decimals=2, least_n=1),
        _text(
            "metric",
            "Metric",
            "seconds: `wait_s` from due to sent; `ttft_s` and `end_s` from sent (service); "
            "`ttft_due_s` and `end_due_s` from due",
        ),
        _ratio("share", "Share", "0.99: the 99th percentile"),
        _count("n", "n", "requests with a value"),
        _count("n_questions", "Questions", "different prompts and turns among them"),
        _ratio("value", "Value", "as in latency", 4),
        _ratio("low", "Low", "as in latency", 4),
        _ratio("high", "High", "as in latency", 4),
        _text("note", "Note", "why there is no value"),
    ),
    ("server", "workload", "arrivals_per_s"),
)  # fmt: skip

GOODPUT = Table(
    "goodput",
    "a server and concurrency, the five classes together; only with `analysis.limits`",
    (
        SERVER,
        CONCURRENCY,
        _count("n", "n", "requests"),
        _count("n_questions", "Questions", "different prompts and turns among them"),
        _count("within", "Within", "requests that keep every limit; an unmeasured time keeps none"),
        _share("share", "Share", "within ÷ n"),
        _share("share_low", "Low", "lower end of Wilson's interval, counting questions"),
        _share("share_high", "High", "upper end of it"),
        Column("requests_per_s", "Requests", "n ÷ Σ seconds of the cells", "number", "1/s",
               decimals=3, least_n=1),
        Column("goodput_per_s", "Goodput", "within ÷ Σ seconds of the cells", "number", "1/s",
               decimals=3, least_n=1),
    ),
    ("server", "concurrency"),
)  # fmt: skip

CROSSOVER = Table(
    "crossover",
    "a server compared with the baseline at two concurrencies or more",
    (
        SERVER,
        _text("classes", "Classes", "the classes that enter: those compared at all of them"),
        _count("levels", "Levels", "concurrencies compared"),
        _count("lowest", "Lowest", "lowest of them"),
        _count("highest", "Highest", "highest of them"),
        _ratio(
            "crossover",
            "Crossover",
            "concurrency at which the pooled speed-up falls to 1; its logarithm is taken as linear "
            "in that of the concurrency between measured levels; empty if it does not fall to 1",
            1,
        ),
        _ratio("crossover_low", "Low", "the same for the lower ends of the intervals", 1, 2),
        _ratio("crossover_high", "High", "the same for the upper ends", 1, 2),
        _text("said", "In words", "up to what load the server pays"),
    ),
    ("server",),
)

QUALITY = Table(
    "quality",
    "a server, class and kind of check; a prompt counts once, by the first pass over it",
    (
        SERVER,
        WORKLOAD_CLASS,
        _text("check_kind", "Check", "what the answers were checked for"),
        _count("n", "n", "prompts with a checked answer"),
        _count("valid", "Valid", "prompts whose answer passed; of a tool loop, every reply of it"),
        _share("share", "Share", "valid ÷ n"),
        _share("share_low", "Low", "lower end of Wilson's interval of share"),
        _share("share_high", "High", "upper end of it"),
        _count("pairs", "Pairs", "prompts checked here and on the baseline"),
        _share("difference", "Difference", "share − the baseline's share, over the pairs"),
        _share("difference_low", "Low", "lower end of Newcombe's paired interval of difference"),
        _share("difference_high", "High", "upper end of it"),
        _ratio("mcnemar_p", "p", "McNemar's exact test of no difference, two-sided", 3),
    ),
    ("server", "workload_class", "check_kind"),
)

TAGS = Table(
    "tags",
    "a server, concurrency, tag of the prompts and its value; the five classes, ok cells",
    (
        SERVER,
        CONCURRENCY,
        _text("tag", "Tag", "name of a tag in the prompt files, or `thinking`"),
        _text("value", "Value", "value of the tag"),
        _count("n_requests", "Requests", "requests of prompts with this value"),
        replace(
            ACCEPTANCE, formula="Σ (accepted drafts + verify steps) ÷ Σ verify steps; not for AR"
        ),
        _speed("tok_per_s", "Speed", "geometric mean over requests of completion tokens ÷ end_s"),
        _share("length_share", "Cut", "requests ended by the token limit ÷ requests"),
    ),
    ("server", "concurrency", "tag", "value"),
)

TURNS = Table(
    "turns",
    "a server, class with conversations, concurrency and turn; requests of ok cells",
    (
        SERVER,
        WORKLOAD_CLASS,
        CONCURRENCY,
        _count("turn", "Turn", "0 for the first request of a conversation or tool loop"),
        _count("n_requests", "Requests", "requests of this turn"),
        _mean_tokens("prompt_tokens", "Tokens in", "mean of prompt tokens"),
        _mean_tokens("cached_tokens", "Cached", "mean of those served from the prefix cache"),
        _mean_tokens("completion_tokens", "Tokens out", "mean of tokens generated"),
        _ms("ttft_p50_s", "Time to first token", "median over requests of ttft_s"),
        _speed("tok_per_s", "Speed", "geometric mean over requests of completion tokens ÷ end_s"),
        replace(
            ACCEPTANCE, formula="Σ (accepted drafts + verify steps) ÷ Σ verify steps; not for AR"
        ),
        _share("length_share", "Cut", "requests ended by the token limit ÷ requests"),
        CHECKS,
        CHECKS_VALID,
    ),
    ("server", "workload_class", "concurrency", "turn"),
)

LOOPS = Table(
    "loops",
    "a server, workload of class `agentic` and concurrency; ok cells",
    (
        SERVER,
        WORKLOAD,
        CONCURRENCY,
        _count("loops", "Loops", "prompts asked, each a loop of one or more requests"),
        _count("steps", "Steps", "requests of the loops"),
        _ratio("steps_per_loop", "Steps a loop", "steps ÷ loops"),
        _mean_tokens("tokens_per_step", "Tokens a step", "mean of tokens of a request", 1),
        replace(CHECKS, formula="steps whose reply was judged as a call or answer"),
        replace(CHECKS_VALID, formula="those that were valid"),
        _share("valid_share", "Valid", "valid ÷ judged"),
    ),
    ("server", "workload", "concurrency"),
)

ORIGINAL = Table(
    "original",
    "a server and one of the three prompts of the original notes",
    (
        SERVER,
        PROMPT,
        _count("n", "n", "requests"),
        _speed("tok_per_s", "Speed", "mean over requests of completion tokens ÷ end_s"),
        _speed("tok_per_s_sd", "SD", "standard deviation of the same, n − 1", 2),
        Column(
            "completion_tokens",
            "Tokens out",
            "mean over requests",
            "number",
            "tok",
            decimals=0,
            least_n=1,
        ),
    ),
    ("server", "prompt_id"),
)

SERVERS = Table(
    "servers",
    "a configured server",
    (
        SERVER,
        _text("title", "Title", "name in tables and charts"),
        _text("engine", "Engine", "what serves"),
        _text("algorithm", "Algorithm", "as configured"),
        _text("model", "Model", "target model"),
        _text("drafter", "Drafter", "drafter"),
        _count("block_size", "Block", "tokens a draft block holds, the bonus token included"),
        _count("budget", "Budget", "nodes of the tree besides its root"),
        _count("topk_cap", "Top-k cap", "candidates a depth at most"),
        _count("verify_width", "Verified", "tokens the target verifies in a step", "tok"),
        _count("launches_ok", "Launches", "launches that were measured"),
        _count("launches_failed", "Failed", "launches that failed"),
        _text("argv", "Command", "command line of its last launch, quoted for a shell"),
    ),
    ("server",),
)

FAILURES = Table(
    "failures",
    "a launch, cell or request that did not end ok, in whichever attempt",
    (
        _text("level", "Level", "`launch`, `cell` or `request`"),
        SERVER,
        LAUNCH,
        WORKLOAD,
        CONCURRENCY,
        REPEAT,
        PROMPT,
        _count("turn", "Turn", "0 for the first request of a conversation or tool loop"),
        STATUS,
        SENTENCE,
        DETAIL,
        _count("attempt", "Attempt", "attempt of the launch, from 1"),
        _flag("final", "Final", "of the attempt whose numbers count; no: a later one followed"),
        _text("log_tail", "Log", "last lines that the server printed (launches only)"),
    ),
    (
        *("server", "launch", "final", "attempt"),
        *("level", "workload", "concurrency", "repeat", "prompt_id", "turn"),
    ),
)

ENVIRONMENT = Table(
    "environment",
    "a fact about a launch",
    (
        SERVER,
        LAUNCH,
        _text(
            "name",
            "Fact",
            "dotted name: `launch.…`, `env.…`, `identity.…`, `startup.…`, `machine.…`",
        ),
        _text("value", "Value", "text as it is, anything else as JSON"),
    ),
    ("server", "launch", "name"),
)

STARTUP = Table(
    "startup",
    "a step of a launch's start, from the server's own log",
    (
        SERVER,
        LAUNCH,
        _count("step", "Step", "order in the log, from 1"),
        _text("phase", "Phase", "what was done"),
        _seconds("elapsed_s", "Seconds", "as the server measured it; empty: it did not end"),
        Column("used_gib", "Memory", "GPU memory that it took", "number", "GiB", decimals=2),
        _count("tokens_per_request", "Tokens", "graph captures: tokens of each request", "tok"),
        _text("batch_sizes", "Batch sizes", "graph captures: sizes that were captured"),
    ),
    ("server", "launch", "step"),
)

FINDINGS = Table(
    "findings",
    "something noticed about a launch or a cell that may have changed a speed",
    (
        _text("level", "Level", "`launch` (from its start to its end) or `cell`"),
        SERVER,
        LAUNCH,
        WORKLOAD,
        CONCURRENCY,
        REPEAT,
        _text("code", "Code", "code of the finding"),
        _text("sentence", "What", "the code in words"),
        _count("count", "Count", "how often it was noticed"),
        _text("detail", "Detail", "first occurrence: line of the log, process or share"),
    ),
    ("server", "launch", "level", "workload", "concurrency", "repeat", "code"),
)


def _spread(name: str, header: str, formula: str, unit: str, decimals: int) -> tuple[Column, ...]:
    """Smallest, mean and largest of a reading; `{}` in the name stands for which."""
    return tuple(
        Column(name.format(which), f"{header}, {which}", formula, "number", unit, "", decimals, 1)
        for which in ("low", "mean", "high")
    )


TELEMETRY = Table(
    "telemetry",
    "a device (`host`, or a GPU's UUID) during a cell, by samples of about a second",
    (
        *CELL_KEYS,
        _text("device", "Device", "`host` or the UUID of a GPU"),
        _count("samples", "Samples", "samples within the cell"),
        _share("busy_share", "Busy", "mean share of all CPUs, or of the GPU's time"),
        _share("foreign_share", "Others", "mean of it that neither client nor server took"),
        _share("foreign_share_high", "Others, high", "largest of it in a sample"),
        *_spread("sm_clock_{}_mhz", "SM clock", "clock of the multiprocessors", "MHz", 0),
        *_spread("power_{}_w", "Power", "power drawn", "W", 0),
        *_spread("temperature_{}_c", "Temperature", "of the GPU", "°C", 0),
        *_spread("memory_{}_bytes", "Memory", "in use, by whomever", "B", 0),
        Column(
            "foreign_memory_high_bytes",
            "Others' memory",
            "largest use by processes that are not ours; empty: they cannot be told apart",
            "number",
            "B",
            least_n=1,
        ),
        Column("energy_j", "Energy", "∫ power over the cell", "number", "J", decimals=0, least_n=1),
        _share("throttled_share", "Throttled", "samples with slowed clocks ÷ samples"),
        _text("throttle_reasons", "Reasons", "why they were slowed"),
    ),
    ("server", "launch", "workload", "concurrency", "repeat", "device"),
)

DIFFERENCES = Table(
    "differences",
    "a fact in which two compared servers differ besides what the configuration varies",
    (
        SERVER,
        _text("reference", "Against", "a server that it is compared with"),
        _text("fact", "Fact", "dotted name, as in environment"),
        _text("value", "Value", "of the server's newest good launch; empty: not told"),
        _text("reference_value", "Other's value", "of the other's"),
    ),
    ("server", "reference", "fact"),
)

TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        REQUESTS,
        UNITS,
        CELLS,
        CLASSES,
        OVERALL,
        LOAD,
        COMPARISONS,
        HISTOGRAM,
        DEPTHS,
        RANKS,
        COST,
        BUDGETS,
        LOSSLESS,
        DRAWS,
        TREES,
        CHOICE,
        LATENCY,
        ARRIVALS,
        GOODPUT,
        CROSSOVER,
        QUALITY,
        TAGS,
        TURNS,
        LOOPS,
        ORIGINAL,
        SERVERS,
        FAILURES,
        ENVIRONMENT,
        STARTUP,
        FINDINGS,
        TELEMETRY,
        DIFFERENCES,
    )
}
"""Every table under its name, which is also its file's."""
