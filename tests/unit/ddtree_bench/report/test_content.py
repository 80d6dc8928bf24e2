from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from synthetic_tables import Tables, frame, synthetic_config, tables_of, write_tables

from ddtree_bench.charts.data import read_tables
from ddtree_bench.config import CLASSES, Config
from ddtree_bench.prompts import PromptCheck
from ddtree_bench.report.build import TEMPLATES
from ddtree_bench.report.content import content, newest_measurement
from ddtree_bench.report.grid import Grid
from ddtree_bench.report.quality import KINDS
from ddtree_bench.report.tex import breakable, environment
from ddtree_bench.status import Status
from ddtree_bench.workloads import replay, tool_loop

CONFIG = synthetic_config()
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Contents of a report on `kind` of run, tables replaced by name."""

    def make(kind: str, config: Config = CONFIG, **changed: Any) -> dict[str, Any]:
        tables: Tables = tables_of(kind, CONFIG) | changed
        return content(read_tables(write_tables(tables, tmp_path)), config, {"a.csv": "0" * 64})

    return make


def written(grid: Grid) -> list[str]:
    return [" & ".join(cell.tex for cell in row) for row in grid.rows]


def rendered(context: dict[str, Any]) -> str:
    return environment(TEMPLATES).get_template("report.tex.j2").render(context)


def test_headline_of_a_full_run(made: Make) -> None:
    """The best whole server comes first; comparisons carry their interval and n."""
    first, second, third, _ = made("full")["headline"]
    # tree 7/8 is faster by estimate, but pooled over four of five classes
    assert first.startswith("Highest pooled speed, by estimate: tree 15/8, ")
    assert second.startswith("tree 15/8 against plain: faster by more than the margin, speed-up 2.")
    assert third.startswith(
        "tree 15/8 against chain 16, the chain that verifies as many tokens: faster by more than"
    )
    assert "20 prompts, 2 launches" in third


@pytest.mark.parametrize(
    ("table", "verdict", "expected"),
    [
        ("lossless", "faulty", "chain 8 "),
        ("draws", "differs", "chain 8 "),
        ("draws", "does not sample", "tree 15/8,"),
    ],
)
def test_a_faulty_server_is_not_the_fastest(
    made: Make, table: str, verdict: str, expected: str
) -> None:
    """Neither one whose greedy answers are wrong nor one that draws from another distribution."""
    rows = tables_of("full", CONFIG)[table]
    rows.loc[rows["server"] == "ddtree-b15", "verdict"] = verdict
    first, *_ = made("full", **{table: rows})["headline"]
    assert first.startswith(f"Highest pooled speed, by estimate: {expected}")


def test_planned_comparisons_are_on_the_first_page(made: Make) -> None:
    """Beside those with plain decoding and the equal chain; also if they are undecided."""
    table = tables_of("full", CONFIG)["comparisons"]
    chosen = (table["candidate"] == "ddtree-b15") & (table["reference"] == "dflash-b8")
    table.loc[chosen, ["relation", "verdict"]] = ["planned", "undecided"]
    page = made("full", comparisons=table)
    names = f"tree 15/8 against {CONFIG.servers['dflash-b8'].title}"
    assert any(said.startswith(f"{names}: undecided") for said in page["headline"])
    assert any(said.startswith(f"{names}: undecided") for said in page["overturn"])


@pytest.mark.parametrize("kind", ["empty", "failed"])
def test_headline_without_data(made: Make, kind: str) -> None:
    """Nothing measured is said, not left blank."""
    assert made(kind)["headline"] == [
        "No cell ended well, so this report holds no speed and no verdict."
    ]


def test_verdict_on_a_tree_is_the_one_against_its_equal(made: Make) -> None:
    """The last column judges a tree by the chain of equal width, a chain by the baseline."""
    table = tables_of("full", CONFIG)["comparisons"]
    table.loc[table["relation"] == "equal width", "verdict"] = "slower_below_margin"
    rows = written(made("full", comparisons=table)["verdicts"])
    assert rows[0].endswith("reference")
    assert rows[1].endswith("faster")
    assert rows[3].endswith("slower below margin")


def test_failed_server_shows_its_reason(made: Make) -> None:
    """A server without figures stands in the verdicts with what happened to it."""
    rows = written(made("failed")["verdicts"])
    assert len(rows) == len(CONFIG.servers)
    assert all(Status.DIED_AT_START.sentence in row for row in rows)


def test_failed_cell_shows_its_reason(made: Make) -> None:
    """A class that a server failed in stands in the table with the cell's own status."""
    rows = written(made("full")["by_class"])
    assert Status.DIED_IN_REQUEST.sentence in rows[-1]
    assert len(rows) == 5 * (1 + 5)  # five classes, each with a name and five servers


def test_what_would_overturn_it(made: Make) -> None:
    """Undecided pairs and classes on the other side of 1 are told, a pair at a time."""
    table = tables_of("full", CONFIG)["comparisons"]
    equal = table["relation"] == "equal width"
    pooled = table["workload_class"] == "all"
    trees = table["candidate"]
    table.loc[equal & pooled & (trees == "ddtree-b15"), "verdict"] = "undecided"
    table.loc[equal & pooled & (trees == "ddtree-b7"), "verdict"] = "faster"
    turned = equal & (table["workload_class"] == "short") & (trees == "ddtree-b7")
    table.loc[turned, ["speedup", "speedup_low", "speedup_high"]] = [0.9, 0.7, 1.2]
    told = made("full", comparisons=table)["overturn"]
    assert told[0].startswith("tree 15/8 against chain 16: undecided (invented")
    assert any("other side of 1: short 0.90 [0.70, 1.20]" in item for item in told)
    assert "is pooled over 4 of 5 classes" in "\n".join(told)


def test_a_class_in_which_an_undecided_tree_loses_is_on_the_first_page(made: Make) -> None:
    """The verdict does not decide whether a class on the other side of 1 is told."""
    table = tables_of("full", CONFIG)["comparisons"]
    mine = (table["relation"] == "equal width") & (table["candidate"] == "ddtree-b15")
    table.loc[mine, ["speedup", "verdict"]] = [1.2, "undecided"]
    agentic = mine & (table["workload_class"] == "agentic")
    table.loc[agentic, ["speedup", "speedup_low", "speedup_high"]] = [0.8, 0.6, 1.08]
    page = made("full", comparisons=table)
    first, *_ = page["overturn"]
    assert "by estimate on the other side of 1: agentic 0.80 [0.60, 1.08]" in first
    assert any("by class 0.80 (agentic) to 1.20" in sentence for sentence in page["headline"])
    lost = [row for row in written(page["causes_by_class"]) if row.startswith("agentic")]
    assert "0.80 & [0.60,{} & 1.08]" in lost[0]
    assert lost[0].endswith("lost by the rest")


def test_every_status_is_told(made: Make) -> None:
    """The sentence of each status reaches the page."""
    rows = [
        {"level": "cell", "server": "ar", "launch": 1, "status": status,
         "sentence": status.sentence, "attempt": 1, "final": "true"}
        for status in Status
    ]  # fmt: skip
    page = rendered(made("full", failures=frame("failures", rows)))
    assert all(breakable(status.sentence) in page for status in Status)


def test_a_failure_that_a_later_attempt_made_good_is_told(made: Make) -> None:
    """Its attempt has a star, and it is no reason for figures that are missing."""
    rows = [
        {"level": "launch", "server": "ar", "launch": 1, "status": Status.HUNG,
         "sentence": Status.HUNG.sentence, "attempt": 1, "final": "false", "log_tail": "stuck"},
    ]  # fmt: skip
    content = made("full", failures=frame("failures", rows), cells=frame("cells", []))
    page = rendered(content)
    assert "1*" in page
    assert "attempt 1: " in page
    assert str(page).count(Status.HUNG.sentence) == 2  # the row, and the head of its log


def test_the_page_of_facts_leaves_out_what_tells_a_reader_nothing(made: Make) -> None:
    """Seconds of a start have a table of their own; plain decoding has other drafters' defaults."""
    said = "\n".join(written(made("full")["environment"])).replace(r"\allowbreak{}", "")
    assert r"identity.speculative\_num\_draft\_tokens" in said
    assert "identity.model" in said
    assert "ngram" not in said
    assert "parts" not in said


def test_logs_have_an_appendix_only_where_there_are_some(made: Make) -> None:
    """An empty appendix is a page for nothing."""
    head = r"\label{sec:logs}"
    assert head in rendered(made("failed"))
    page = rendered(made("full", failures=frame("failures", [])))
    assert head not in page
    assert "sec:logs" not in page


def test_no_failures_are_said(made: Make) -> None:
    """An empty list of failures is a statement."""
    page = rendered(made("full", failures=frame("failures", [])))
    assert "None: every launch, cell and request that was started ended well." in page


def test_the_first_page_speaks_of_every_concurrency(made: Make) -> None:
    """Its verdicts name their load, and what a higher one changes is told beside them."""
    tables = tables_of("full", CONFIG)
    assert "in flight" not in "\n".join(first_page(made("full")))
    loaded = {name: tables[name].assign(concurrency=8) for name in ("overall", "comparisons")}
    loaded["overall"].loc[loaded["overall"]["server"] == "dflash-b8", "tok_per_s"] = 999.0
    pairs = loaded["comparisons"]
    slow = pairs["candidate"] == "ddtree-b15"
    pairs.loc[slow, ["speedup", "verdict"]] = [0.8, "slower"]
    both = {name: pd.concat([tables[name], loaded[name]]) for name in loaded}
    context = made("full", **both)
    said = "\n".join(first_page(context))
    assert "in flight" in context["bottom_line"]
    assert "Highest pooled speed with 1 in flight" in said
    assert "With 8 in flight: highest pooled speed, by estimate: chain 8 & $co_1, 999.0" in said
    assert "slower: tree 15/8; against the equal chain" in said
    assert "tree 15/8 against plain: by estimate on the other side of 1: with 8 in flight" in said
    cells = tables["cells"].assign(concurrency=8, status="ok", mean_in_flight=3.2)
    said = "\n".join(first_page(made("full", cells=cells, **both)))
    assert "With 8 asked for and 3.2 in flight on average: highest pooled speed" in said


def first_page(context: dict[str, Any]) -> list[str]:
    """The sentences before the set-up."""
    return [context["bottom_line"], *context["headline"], *context["overturn"]]


def test_original_prompts_have_a_section_where_they_were_asked(made: Make) -> None:
    """A run without them shows nothing of them; one in which they failed shows that."""
    head = "The three original prompts"
    assert head in rendered(made("full"))
    assert head in rendered(made("failed"))
    without = CONFIG.model_copy(
        update={"workloads": {name: CONFIG.workloads[name] for name in CLASSES}}
    )
    assert head not in rendered(made("full", without))


def test_load_needs_two_concurrencies(made: Make) -> None:
    """One concurrency says that load is unknown; two give a table."""
    assert "nothing here tells how the servers compare" in rendered(made("full"))
    table = tables_of("full", CONFIG)["overall"]
    table["concurrency"] = [1, 4, 1, 4, 1]
    load = table.assign(classes="short, longform")
    page = rendered(made("full", overall=table, load=load))
    assert r"\label{tab:load}" in page
    assert "pooled over short,{} longform." in page
    load.loc[load["server"] == "ar", "classes"] = "short"
    other = made("full", overall=table, load=load)["load"].caption
    assert "has at each of its concurrencies (plain: short; " in other


def test_simulation_is_told_on_the_first_page(made: Make) -> None:
    """A server that fabricates acceptance makes the report say that it measures nothing."""
    fact = {"server": "ar", "launch": 1, "name": "env.SGLANG_SIMULATE_ACC_LEN", "value": "3"}
    context = made("full", environment=frame("environment", [fact]))
    assert context["simulated"] == ["env.SGLANG_SIMULATE_ACC_LEN 3"]
    assert "Not a measurement." in rendered(context)
    assert "Not a measurement." not in rendered(made("full"))


def test_common_facts_are_told_once(made: Make) -> None:
    """A fact of all launches has one row, another the names of its launches."""
    facts = [
        {"server": server, "launch": launch, "name": "machine.cpu_model", "value": "A"}
        for server in ("ar", "dflash-b8")
        for launch in (1, 2)
    ]
    facts.append({"server": "ar", "launch": 2, "name": "machine.clocks_mhz", "value": "9"})
    rows = written(made("full", environment=frame("environment", facts))["environment"])
    assert len(rows) == 4
    assert "all launches" in rows[0]
    assert "plain launch 2" in rows[2]


def test_rank_shares_add_up(made: Make) -> None:
    """Shares of accepted nodes are of all accepted nodes, those beyond the columns included."""
    ranks = [
        {"server": "ddtree-b15", "rank": rank, "accepted": accepted}
        for rank, accepted in ((0, 60), (1, 20), (4, 15), (6, 5))
    ]
    (row, _) = made("full", ranks=frame("ranks", ranks))["shape"].rows
    # 60, 20, 0, 0 of 100, and 15 + 5 beyond rank 3
    assert [cell.tex for cell in row[-5:]] == ["60.0", "20.0", "0.0", "0.0", "20.0"]


def test_newest_measurement_dates_the_report() -> None:
    """The report's date is that of its data; without data it is the epoch."""
    cells = tables_of("full", CONFIG)["cells"]
    assert newest_measurement({"cells": cells}) == int(cells["started_unix_s"].max())
    assert newest_measurement({"cells": cells.assign(started_unix_s=np.nan)}) == 0


def test_right_answers_are_shown_by_server(made: Make) -> None:
    """Shares with Wilson's interval; the baseline has no difference to itself."""
    rows = written(made("full")["quality"])
    plain = next(row for row in rows if row.startswith("plain"))
    tree = next(row for row in rows if row.startswith("tree 15/8"))
    assert "75.0 & [46.8,{} & 91.1]" in plain
    assert plain.endswith("– &  &  & –")
    assert tree.endswith("0.0 & [-{}18.0,{} & 18.0] & 1.000")


def test_every_kind_of_check_has_a_name() -> None:
    """A new check is not printed as its code."""
    (union, _) = get_args(PromptCheck)
    kinds = {kind.model_fields["kind"].annotation for kind in get_args(union)}
    codes = {code for literal in kinds for code in get_args(literal)}
    assert codes | {tool_loop.CHECK_KIND, replay.CHECK_KIND} == set(KINDS)


def test_an_open_loop_is_shown_from_due_and_of_service(made: Make) -> None:
    """Both times stand side by side; without such cells there is no table."""
    assert "Open loop" not in rendered(made("full"))
    rows = [
        {"server": "ar", "workload": "chat", "arrivals_per_s": 2.0, "served_per_s": 0.86,
         "metric": metric, "share": share, "n": 7, "n_questions": 7, "value": value + share,
         "low": value, "high": value + 1, "note": ""}
        for metric, value in (("end_s", 2.0), ("end_due_s", 5.0), ("ttft_s", 9.9))
        for share in (0.5, 0.9, 0.99)
    ]  # fmt: skip
    found = made("full", arrivals=frame("arrivals", rows))
    service, due = written(found["arrivals"])
    assert "service" in service
    assert "2.5000 & [2.0000," in service
    assert "from due" in due
    assert "5.5000" in due
    assert "Open loop" in rendered(found)


def test_conversations_are_shown_by_turn(made: Make) -> None:
    """Speed, time to first token and acceptance of turns 1 to 4; what was not reached is a dash."""
    grid = made("full")["turns"]
    plain, chain = written(grid)[:2]
    assert plain.startswith("plain & 33.3 & 33.3 & 33.3 & – & 100.0 & 110.0 & 120.0 & – & –")
    assert chain.endswith("3.10 & 3.10 & 3.10 & –")


def test_tool_loops_are_shown_by_workload(made: Make) -> None:
    """Loops, their steps, tokens of a step, and the valid share of what was judged."""
    rows = written(made("full")["loops"])
    assert len(rows) == len(CONFIG.servers)
    assert rows[0] == "plain & agentic & 4 & 2.50 & 31.4 & 10 & 90.0"


def test_servers_of_others_were_measured_not_launched(made: Make) -> None:
    """Sessions on a process that runs anyway are no launches of it."""
    servers = {
        name: server.model_copy(update={"engine": "attach"} if name == "ddtree-b7" else {})
        for name, server in CONFIG.servers.items()
    }
    told = made("full", CONFIG.model_copy(update={"servers": servers}))["protocol"]
    assert told[0].startswith("Every other server was launched 2 times")
    assert told[1].startswith("Measured 2 times, but launched by others: tree 7/8")
    alone = made("full")["protocol"]
    assert alone[0].startswith("Every server was launched 2 times")
    assert not any("launched by others" in sentence for sentence in alone)
