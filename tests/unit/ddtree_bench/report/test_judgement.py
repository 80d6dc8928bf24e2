import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from synthetic_tables import frame, synthetic_config, tables_of, write_tables

from ddtree_bench.charts.data import read_tables
from ddtree_bench.report import judgement
from ddtree_bench.report.build import POWER
from ddtree_bench.report.summary import headline
from ddtree_bench.report.view import View

CONFIG = synthetic_config()
Make = Callable[..., View]


@pytest.fixture
def view(tmp_path: Path) -> Make:
    """A run of `kind`, tables replaced by name."""

    def make(kind: str = "full", **changed: pd.DataFrame) -> View:
        tables = tables_of(kind, CONFIG) | changed
        return View(read_tables(write_tables(tables, tmp_path)), CONFIG)

    return make


def judged(**verdicts: str) -> pd.DataFrame:
    """The comparisons of a full run, all undecided but those against the baseline named here."""
    table = tables_of("full", CONFIG)["comparisons"].assign(verdict="undecided")
    for server, verdict in verdicts.items():
        name = server.replace("_", "-")
        table.loc[(table["candidate"] == name) & (table["relation"] == "baseline"), "verdict"] = (
            verdict
        )
    return table


def test_bottom_line_names_the_best_and_its_chain(view: Make) -> None:
    """One server, its ratio to plain decoding, and whether its tree was worth it."""
    said = judgement.bottom_line(view(comparisons=judged(ddtree_b15="faster")))
    assert said.startswith("tree 15/8 is 2.")
    assert said.endswith("not shown to be faster than chain 16, its equal in width.")


def test_bottom_line_says_that_the_best_was_picked(view: Make) -> None:
    """Of several faster servers the highest estimate is no test of its own."""
    table = judged(ddtree_b15="faster", dflash_b16="faster_below_margin")
    assert "of 2 servers shown to be faster it has" in judgement.bottom_line(
        view(comparisons=table)
    )


def test_bottom_line_prefers_whole_figures(view: Make) -> None:
    """The narrow tree is faster yet, but pooled over four of five classes."""
    table = judged(ddtree_b15="faster", ddtree_b7="faster")
    assert judgement.bottom_line(view(comparisons=table)).startswith("tree 15/8 is ")


@pytest.mark.parametrize(
    ("verdict", "end"),
    [("undecided", "traffic; no comparison with it is decided."), ("slower", "on this traffic.")],
)
def test_bottom_line_without_a_faster_server(view: Make, verdict: str, end: str) -> None:
    """What was not shown is not said; a faulty server is no winner."""
    table = judged(ddtree_b15=verdict, ddtree_b7="undecided")
    said = judgement.bottom_line(view(comparisons=table))
    assert said.startswith("No server is shown to be faster than plain")
    assert said.endswith(end)


@pytest.mark.parametrize("kind", ["empty", "failed"])
def test_bottom_line_without_data(view: Make, kind: str) -> None:
    """Nothing measured gives no verdict."""
    assert judgement.bottom_line(view(kind)) == "Nothing was compared: no verdict."


def test_faulty_server_has_no_rank(view: Make) -> None:
    """The fastest server does not head the summary if its answers are faulty."""
    table = tables_of("full", CONFIG)["lossless"]
    assert headline(view())[0].startswith("Highest pooled speed, by estimate: tree 15/8")
    table.loc[table["server"] == "ddtree-b15", "verdict"] = "faulty"
    assert headline(view(lossless=table))[0].startswith(
        "Highest pooled speed, by estimate: chain 8"
    )


def test_causes_name_the_factor(view: Make) -> None:
    """The wide tree takes 3.6 ÷ 3.1 of chain 16's tokens a step, at 0.056 ÷ 0.052 of its time."""
    (wide, narrow) = judgement.causes(view())
    assert wide.startswith("tree 15/8 won by acceptance against chain 16, by estimate: ")
    # 3.6 ÷ 3.1 = 1.16; 0.052 ÷ 0.056 = 0.93
    assert "1.16 (acceptance) × 0.93 (cost of a step) × 0.97 (time to first token)" in wide
    assert narrow.startswith("tree 7/8")


def test_profile_names_what_acceptance_and_cost_choose(view: Make) -> None:
    """3.6 tokens in 0.056 s are 64.3 tok/s; tree 7/8 has 3.2 in 0.046 s: 69.6."""
    chosen, drafting, budget = judgement.profile(view())
    assert "tree 7/8 木 (69.6 tok/s) would be chosen" in chosen
    assert drafting == "What part of a step is drafting, these engines do not tell."
    assert "from 1 to 15 of tree 15/8 the profile would choose 9: predicted 1.90" in budget
    assert judgement.profile(view("empty")) == [
        "No step time was measured, so the profile chooses nothing."
    ]


def test_the_part_of_a_step_that_is_drafting_is_named(view: Make) -> None:
    """Where an engine tells it."""
    cost = tables_of("full", CONFIG)["cost"]
    cost.loc[cost["server"] == "dflash-b8", "draft_share"] = 0.241
    _, drafting, *_ = judgement.profile(view(cost=cost))
    assert drafting == "Drafting takes, of a step: chain 8 & $co_1 24.1 %."


def test_too_few_questions_are_told_as_such(view: Make) -> None:
    """A percentile without a value is n/a, not a dash and not a number."""
    row = judgement.latency(view()).rows[0]
    shown = [cell.tex for cell in row]
    assert shown[3:6] == ["61.2", "[57.1,{}", "71.2]"]
    assert shown[9:] == ["n/a", "", ""]


def test_a_choice_names_its_load(view: Make) -> None:
    """The same split at another number in flight is another row, not a contradiction."""
    table = tables_of("full", CONFIG)["choice"]
    both = pd.concat([table, table.assign(concurrency=16, speedup=0.9)])
    rows = [[cell.tex for cell in row] for row in judgement.choice(view(choice=both)).rows]
    assert {row[0] for row in rows} == {"1", "16"}
    assert all((row[0] == "16") == (row[6] == "0.90") for row in rows)


def test_no_choice_says_why_once(view: Make) -> None:
    """Both splits have the same reason."""
    reason = "no choice is made: 10 prompts to choose, at least 20 needed"
    rows = [{"concurrency": 1, "split": s, "detail": reason} for s in ("first", "second")]
    made = view(choice=frame("choice", rows))
    assert judgement.choice(made).rows == ()
    assert judgement.no_choice(made) == [
        "No choice is made: 10 prompts to choose, at least 20 needed."
    ]
    assert judgement.no_choice(view("empty")) == [
        "No tree was measured: there is nothing to choose."
    ]


def test_crossover_with_an_open_end(view: Make) -> None:
    """An end of the interval beyond the measured levels is a dash."""
    said = "tree 15/8 pays up to about 5.2 in flight [4.1, –], over short, longform."
    assert judgement.crossovers(view()) == [said]


def test_faulty_answers_stand_out(view: Make) -> None:
    """The table of answers marks a faulty server."""
    table = tables_of("full", CONFIG)["lossless"]
    table.loc[table["server"] == "ddtree-b7", "verdict"] = "faulty"
    rows = judgement.answers(view(lossless=table)).rows
    assert [r"\failed" in row[-1].tex for row in rows] == [False, False, False, False, True]


def test_recorded_power_is_what_the_method_promises() -> None:
    """Intervals hold the truth in 93.5 to 96.5 %; false `faster` stays under 5 %."""
    figures: dict[str, Any] = json.loads(POWER.read_text(encoding="utf-8"))
    assert figures["runs"] >= 1000
    for setting in figures["settings"]:
        assert 0.935 <= setting["coverage"] <= 0.965
        assert setting["false_faster"] <= 0.05
    assert f"{figures['runs']} simulated runs" in judgement.power(figures)


def test_power_not_simulated_is_said() -> None:
    """Without the file the report claims nothing."""
    assert "was not simulated" in judgement.power(None)
