import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ddtree_bench.columns import TABLES
from ddtree_bench.config import Config
from ddtree_bench.errors import BenchError
from ddtree_bench.findings import FindingCode
from ddtree_bench.hashing import json_sha256
from ddtree_bench.records import Failure, Finding, SpecCounts
from ddtree_bench.status import Status
from ddtree_bench.tables import build_tables
from ddtree_bench.tables.write import csv_text

Builders = dict[str, Callable[..., Any]]


def only(frame: pd.DataFrame, **where: object) -> dict[str, Any]:
    """The single row that matches."""
    for name, value in where.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, f"{len(frame)} rows for {where}"
    return dict(frame.iloc[0])


def test_no_session_gives_every_table_with_its_headers(config: Config) -> None:
    """An empty run has all tables; only those of configured servers have rows."""
    tables = build_tables([], config)
    assert list(tables) == list(TABLES)
    for name, frame in tables.items():
        assert tuple(frame.columns) == TABLES[name].names
        assert len(frame) == (3 if name in ("servers", "lossless") else 0)


def test_all_failed_run_shows_failures_and_no_numbers(
    config: Config, run: Any, records: Builders
) -> None:
    """Launches that died are rows with their log, their cells are counted, nothing is compared."""
    for server in config.servers:
        cell = records["cell"](records["id"](server, 1, "short"), (), Status.NOT_RUN)
        run.add(server, 1, [cell], Status.OUT_OF_MEMORY, log_tail="CUDA error", detail="x")
    tables = build_tables(run.folders, config)
    failures = tables["failures"]
    assert sorted(failures["level"]) == ["cell"] * 3 + ["launch"] * 3
    launch = only(failures, level="launch", server="ar")
    assert launch["log_tail"] == "CUDA error"
    assert launch["sentence"] == Status.OUT_OF_MEMORY.sentence
    assert tables["classes"]["tok_per_s"].isna().all()
    assert set(tables["comparisons"]["verdict"]) == {"undecided"}
    row = only(tables["comparisons"], candidate="tree", relation="baseline", workload_class="all")
    assert row["verdict_detail"] == "tree was not measured"
    assert only(tables["servers"], server="tree")["launches_failed"] == 1


def test_a_failure_of_an_earlier_attempt_is_a_row(
    config: Config, run: Any, records: Builders
) -> None:
    """It is not final: the launch is measured, and counts as such."""
    cell = records["cell"](records["id"]("ar", 1, "short"), ())
    died = Failure(level="launch", attempt=1, status=Status.DIED_AT_START, log_tail="CUDA error")
    run.add("ar", 1, [cell], attempt=2, earlier_failures=(died,))
    tables = build_tables(run.folders, config)
    row = only(tables["failures"], server="ar")
    assert (row["level"], row["attempt"], row["final"]) == ("launch", 1, False)
    assert row["log_tail"] == "CUDA error"
    assert only(tables["servers"], server="ar")["launches_ok"] == 1
    assert only(tables["servers"], server="ar")["launches_failed"] == 0


def test_a_round_that_was_not_needed_counts_nowhere(config: Config, two_rounds: Any) -> None:
    """It is neither measured nor failed, and no row changes but what is told of the launch."""
    before = build_tables(two_rounds.folders, config)
    folder = two_rounds.add("tree", 3, [], Status.NOT_NEEDED, argv=(), machine={"cpu": "x"})
    after = build_tables([*two_rounds.folders[:-1], folder], config)
    changed = [name for name in TABLES if not before[name].equals(after[name])]
    assert changed == ["environment"]
    told = after["environment"][after["environment"]["launch"] == 3]
    assert "not_needed" in set(told["value"])
    assert all(name.startswith("launch.") for name in told["name"])


def test_speed_of_a_class_by_hand(config: Config, two_rounds: Any) -> None:
    """tok_per_s is one over the geometric mean of seconds per token over prompts and launches."""
    # ar, short: prompts 0.020 and 0.022 s per token, launches ×1 and ×1.002
    # exp of mean log = 0.020 · √1.1 · √1.002
    classes = build_tables(two_rounds.folders, config)["classes"]
    row = only(classes, server="ar", workload_class="short")
    assert row["tok_per_s"] == pytest.approx(1 / (0.020 * 1.1**0.5 * 1.002**0.5))
    assert row["tok_per_s_low"] < row["tok_per_s"] < row["tok_per_s_high"]
    assert (row["n_prompts"], row["n_launches"], row["n_requests"]) == (2, 2, 4)
    assert row["length_share"] == 1.0


def test_overall_weighs_classes_alike_and_leaves_original_out(
    config: Config, two_rounds: Any
) -> None:
    """The pooled figure is the geometric mean of the five classes' figures that exist."""
    tables = build_tables(two_rounds.folders, config)
    speeds = [
        only(tables["classes"], server="ar", workload_class=name)["tok_per_s"]
        for name in ("short", "longform")
    ]
    row = only(tables["overall"], server="ar")
    assert row["tok_per_s"] == pytest.approx(np.prod(speeds) ** 0.5)
    assert (row["n_classes"], row["n_requests"]) == (2, 8)
    assert only(tables["classes"], server="ar", workload_class="original")["n_requests"] == 2


def test_speedup_of_the_tree_by_hand(config: Config, two_rounds: Any) -> None:
    """The pooled speed-up is the mean over classes of the mean log ratio."""
    # short: mean of ln 4 and ln 4.4; longform: ln 4; together exp(ln 4 + ln 1.1 ÷ 4)
    comparisons = build_tables(two_rounds.folders, config)["comparisons"]
    row = only(comparisons, candidate="tree", relation="baseline", workload_class="all")
    assert row["speedup"] == pytest.approx(4 * 1.1**0.25)
    assert row["speedup_low"] < row["speedup"] < row["speedup_high"]
    assert row["verdict"] == "faster"
    assert (row["n_prompts"], row["n_launches"]) == (4, 2)
    assert (row["wins"], row["ties"], row["losses"]) == (4, 0, 0)
    assert row["sign_p"] == pytest.approx(2 * 0.5**4)
    # launches differ by ln 1.002 = √2 S in every server; 1.96 √2 S = 1.96 ln 1.002
    assert row["noise_floor"] == pytest.approx(1.002**1.96, rel=1e-6)
    assert row["p_holm"] >= row["p_value"]


def test_prediction_is_acceptance_over_step_time(config: Config, two_rounds: Any) -> None:
    """Acceptance 4 with steps as long as a plain token's predicts a factor of 4."""
    # a tree step gives 4 tokens in 4 · 0.005 s = 0.020 s: as long as ar's token (longform)
    comparisons = build_tables(two_rounds.folders, config)["comparisons"]
    row = only(comparisons, candidate="tree", relation="baseline", workload_class="longform")
    assert row["acceptance_ratio"] == 4.0
    assert row["step_time_ratio"] == pytest.approx(1.0)
    assert row["predicted_speedup"] == pytest.approx(4.0)


def test_what_the_first_token_makes_of_a_speedup(config: Config, run: Any, records: Any) -> None:
    """Two answers of 21 tokens: equal after the first token, which one side has 0.1 s later."""
    for server, first_s in (("ar", 0.01), ("chain", 0.11)):
        cell = records["id"](server, 1, "short")
        counts = (1, 21) if server == "chain" else range(1, 22)
        events = tuple({"at_s": first_s + 0.01 * (n - 1), "tokens": n} for n in counts)
        answer = records["request"](cell, "p1", 0.01, events=events, end_s=events[-1]["at_s"])
        run.add(server, 1, [records["cell"](cell, (answer,))])
    tables = build_tables(run.folders, config)
    unit = only(tables["units"], server="chain")
    assert unit["decode_s_per_token"] == pytest.approx(0.2 / 21)
    row = only(tables["comparisons"], candidate="chain", workload_class="short")
    # 0.21 s against 0.31 s, after the first token 0.2 s on both sides
    assert row["speedup"] == pytest.approx(0.21 / 0.31)
    assert row["first_token_factor"] == pytest.approx(0.21 / 0.31)


def test_an_answer_in_one_event_has_no_time_after_its_first_token(
    config: Config, run: Any, records: Any
) -> None:
    """Then the factor is not known: it is not 0."""
    for server in ("ar", "chain"):
        cell = records["id"](server, 1, "short")
        event = ({"at_s": 0.21, "tokens": 21},)
        answer = records["request"](cell, "p1", 0.01, events=event, end_s=0.21, stream=False)
        run.add(server, 1, [records["cell"](cell, (answer,))])
    comparisons = build_tables(run.folders, config)["comparisons"]
    row = only(comparisons, candidate="chain", workload_class="short")
    assert row["speedup"] == pytest.approx(1)
    assert row["first_token_factor"] != row["first_token_factor"]


def test_relations(config: Config, two_rounds: Any) -> None:
    """Everything meets the baseline; a tree meets the chain that verifies as many tokens."""
    comparisons = build_tables(two_rounds.folders, config)["comparisons"]
    pairs = comparisons[["candidate", "reference", "relation"]].drop_duplicates()
    assert sorted(map(tuple, pairs.to_numpy())) == [
        ("chain", "ar", "baseline"),
        ("tree", "ar", "baseline"),
        ("tree", "chain", "equal width"),  # budget 7 and the root: 8, as the block
    ]


def test_only_planned_comparisons_are_tested(config: Config, two_rounds: Any) -> None:
    """A server that plans another opponent is shown beside plain decoding, and Holm counts less."""
    before = build_tables(two_rounds.folders, config)["comparisons"]
    analysis = config.analysis.model_copy(update={"against": {"tree": ("chain",)}})
    planned = config.model_copy(update={"analysis": analysis})
    after = build_tables(two_rounds.folders, planned)["comparisons"]
    where = {"candidate": "tree", "workload_class": "all"}
    shown, was = (only(frame, relation="baseline", **where) for frame in (after, before))
    assert (shown["verdict"], was["verdict"]) == ("not_tested", "faster")
    assert shown["verdict_detail"].startswith("not tested, as the configuration plans others")
    assert pd.isna(shown["p_holm"])
    assert shown["speedup_low"] == was["speedup_low"]
    # the smallest p of three, then of two
    tested, before_it = (only(frame, relation="equal width", **where) for frame in (after, before))
    assert before_it["p_holm"] == pytest.approx(3 * before_it["p_value"])
    assert tested["p_holm"] == pytest.approx(2 * tested["p_value"])


def test_load_pools_the_same_classes_at_every_level(
    config: Config, run: Any, records: Builders
) -> None:
    """A class of one level only is in that level's pooled row, and in no curve."""
    seconds = {
        "ar": {("short", 1): 0.02, ("short", 4): 0.02, ("longform", 1): 0.08},
        "tree": {("short", 1): 0.01, ("short", 4): 0.04, ("longform", 1): 0.01},
    }
    for launch in (1, 2):
        for server, cells in seconds.items():
            run.add(server, launch, [
                records["cell"](cell, tuple(records["request"](cell, p, s) for p in ("p1", "p2")))
                for (name, concurrency), s in cells.items()
                for cell in [records["id"](server, launch, name).model_copy(
                    update={"concurrency": concurrency})]
            ])  # fmt: skip
    tables = build_tables(run.folders, config)
    pooled = {
        row["concurrency"]: (row["classes"], row["speedup"])
        for row in tables["comparisons"].to_dict("records")
        if (row["candidate"], row["relation"], row["workload_class"]) == ("tree", "baseline", "all")
    }
    # at 1: 2 and 8, together 4; with 4 in flight half as fast, of class short alone
    assert pooled[1] == ("short, longform", pytest.approx(4.0))
    assert pooled[4] == ("short", pytest.approx(0.5))
    # from 2 at 1 to ½ at 4: 1 at 2; the mixed curve would meet 1 at 2.5
    row = only(tables["crossover"], server="tree")
    assert (row["classes"], row["crossover"]) == ("short", pytest.approx(2.0))
    assert set(tables["load"]["classes"]) == {"short"}
    assert only(tables["load"], server="ar", concurrency=1)["tok_per_s"] == pytest.approx(50.0)
    assert only(tables["overall"], server="ar", concurrency=1)["tok_per_s"] == pytest.approx(25.0)


def test_one_launch_is_undecided(config: Config, run: Any) -> None:
    """Without a second launch the ratio stands without interval and verdict."""
    for server, s_per_token in (("ar", 0.02), ("chain", 0.01), ("tree", 0.01)):
        run.ok(server, 1, {"short": {"p1": s_per_token, "p2": s_per_token * 1.1}})
    row = only(
        build_tables(run.folders, config)["comparisons"],
        candidate="tree",
        relation="baseline",
        workload_class="all",
    )
    assert row["speedup"] == pytest.approx(2.0)
    assert pd.isna(row["speedup_low"])
    assert row["verdict"] == "undecided"
    assert row["verdict_detail"] == "one launch: noise between launches unknown"


def test_rounds_that_never_meet_are_not_compared(config: Config, run: Any) -> None:
    """A server measured in other rounds than its opponent is not interleaved with it."""
    seconds = {"short": {"p1": 0.01, "p2": 0.01}}
    for server, launch in (("ar", 1), ("ar", 2), ("tree", 3), ("tree", 4)):
        run.ok(server, launch, seconds)
    row = only(
        build_tables(run.folders, config)["comparisons"],
        candidate="tree",
        relation="baseline",
        workload_class="short",
    )
    assert pd.isna(row["speedup"])
    assert row["verdict_detail"] == "not interleaved: no round was measured on both sides"


def test_prompts_pair_by_their_rendered_text(config: Config, run: Any, records: Builders) -> None:
    """The same id with another text is another prompt: a ratio of the two would mean nothing."""
    run.ok("ar", 1, {"short": {"p1": 0.02, "p2": 0.02}})
    cell = records["id"]("tree", 1, "short")
    requests = tuple(
        records["request"](cell, prompt, 0.01, prompt_sha256="other") for prompt in ("p1", "p2")
    )
    run.add("tree", 1, [records["cell"](cell, requests)])
    row = only(
        build_tables(run.folders, config)["comparisons"],
        candidate="tree",
        relation="baseline",
        workload_class="short",
    )
    assert row["n_prompts"] == 0
    assert "prompts in common" in row["verdict_detail"]


def test_cell_with_a_failed_request_stays_out(config: Config, run: Any, records: Builders) -> None:
    """One failed request takes its cell out of statistics; it is counted and shown."""
    cell = records["id"]("ar", 1, "short")
    requests = (
        records["request"](cell, "p1", 0.02),
        records["failed"](cell, "p2", Status.HUNG),
    )
    run.add("ar", 1, [records["cell"](cell, requests, Status.HUNG)])
    tables = build_tables(run.folders, config)
    row = only(tables["classes"], server="ar")
    assert (row["n_requests"], row["failed_requests"]) == (0, 1)
    assert pd.isna(row["tok_per_s"])
    assert len(tables["units"]) == 0
    assert sorted(tables["failures"]["level"]) == ["cell", "request"]
    assert only(tables["failures"], level="request")["prompt_id"] == "p2"
    assert len(tables["requests"]) == 2


def test_conversation_is_one_unit(config: Config, run: Any, records: Builders) -> None:
    """The turns of a conversation add up to one unit."""
    cell = records["id"]("ar", 1, "short")
    requests = (
        records["request"](cell, "p1", 0.03, turn=1, prompt_sha256="second"),
        records["request"](cell, "p1", 0.01, turn=0, prompt_sha256="first"),
    )
    run.add("ar", 1, [records["cell"](cell, requests)])
    unit = only(build_tables(run.folders, config)["units"], prompt_id="p1")
    # 21 · 0.03 + 21 · 0.01 = 0.84 s for 42 tokens
    assert unit["seconds"] == pytest.approx(0.84)
    assert unit["s_per_token"] == pytest.approx(0.02)
    assert unit["requests"] == 2
    # asked was "first", then "second"
    assert unit["prompt_sha256"] == json_sha256(["first", "second"])


def test_zero_is_not_missing(config: Config, run: Any, records: Builders) -> None:
    """A measured zero is written as 0, what was not measured as nothing."""
    cell = records["id"]("ar", 1, "short")
    requests = (records["request"](cell, "p1", 0.01, cached_tokens=None),)
    run.add("ar", 1, [records["cell"](cell, requests)])
    row = only(build_tables(run.folders, config)["requests"], prompt_id="p1")
    assert row["overshoot_tokens"] == 0
    assert pd.isna(row["cached_tokens"])
    assert pd.isna(row["verify_steps"])


def test_histogram_depths_and_ranks_are_sums(config: Config, two_rounds: Any) -> None:
    """Verify steps add up over requests; the pooled rows leave `original` out."""
    tables = build_tables(two_rounds.folders, config)
    # longform: 2 prompts × 2 launches × 5 steps, all of which accepted 3
    row = only(tables["histogram"], server="tree", workload_class="longform", accepted_drafts=3)
    assert (row["steps"], row["share"]) == (20, 1.0)
    pooled = only(tables["histogram"], server="tree", workload_class="all", accepted_drafts=3)
    assert pooled["steps"] == 40
    depth = only(tables["depths"], server="tree", depth=1)
    assert (depth["nodes"], depth["accepted"]) == (15 * 8, 5 * 8)
    assert list(tables["ranks"]["accepted"]) == [12 * 8, 3 * 8]
    assert set(tables["depths"]["server"]) == {"tree"}


def test_cost_by_hand(config: Config, two_rounds: Any) -> None:
    """A plain step is a token; a tree step takes four tokens' time here."""
    cost = build_tables(two_rounds.folders, config)["cost"]
    tree, plain = only(cost, server="tree"), only(cost, server="ar")
    # 20 tokens after the first in 20 · 0.005 s, 5 steps: 0.020 s; launches ×1 and ×1.002
    assert tree["step_time_s"] == pytest.approx(0.020 * 1.002**0.5)
    assert (tree["verify_width"], tree["acceptance_length"]) == (8, 4.0)
    assert plain["step_time_s"] == pytest.approx(0.020 * 1.1**0.25 * 1.002**0.5)
    assert plain["acceptance_length"] == 1.0


def test_lossless_compares_ids_with_the_baselines_first_answer(
    config: Config, run: Any, records: Builders
) -> None:
    """The first differing token counts, sampled answers do not, the baseline is its own floor."""
    answers = {"ar": ((1, 2, 3), (1, 2, 3)), "tree": ((1, 2, 9), (1, 2, 3))}
    for server, by_launch in answers.items():
        for launch, ids in enumerate(by_launch, start=1):
            cell = records["id"](server, launch, "short")
            request = records["request"](cell, "p1", 0.01, output_ids=ids)
            run.add(server, launch, [records["cell"](cell, (request,))])
    lossless = build_tables(run.folders, config)["lossless"]
    tree, floor = only(lossless, server="tree"), only(lossless, server="ar")
    assert (tree["compared"], tree["identical"], tree["share"]) == (2, 1, 0.5)
    assert tree["first_difference_median"] == 2.0
    assert (floor["compared"], floor["identical"]) == (1, 1)
    assert pd.isna(only(lossless, server="chain")["share"])


def test_original_prompts_by_the_notes_formula(config: Config, two_rounds: Any) -> None:
    """Tokens ÷ wall time of the whole request, averaged over requests."""
    row = only(build_tables(two_rounds.folders, config)["original"], server="chain")
    assert (row["n"], row["prompt_id"]) == (2, "two-plus-two")
    assert row["tok_per_s"] == pytest.approx(100.0)
    assert row["tok_per_s_sd"] == pytest.approx(0.0)


def test_order_of_sessions_is_irrelevant(config: Config, two_rounds: Any) -> None:
    """Any order of the folders gives the same bytes."""
    straight = build_tables(two_rounds.folders, config)
    shuffled = list(two_rounds.folders)
    random.Random(3).shuffle(shuffled)
    turned = build_tables(shuffled, config)
    for name, table in TABLES.items():
        assert csv_text(straight[name], table) == csv_text(turned[name], table)


def test_environment_flattens_what_is_known(config: Config, run: Any) -> None:
    """Nested facts get dotted names; what is unknown gets no row."""
    run.add("ar", 1, [], identity={"a": {"b": [1]}}, machine={"gpu": None}, environment={"X": "y"})
    facts = build_tables(run.folders, config)["environment"].set_index("name")["value"]
    assert facts["identity.a.b"] == "[1]"
    assert facts["env.X"] == "y"
    assert facts["launch.argv"] == "python -m engine --name 'a b'"
    assert "machine.gpu" not in facts.index


def test_unknown_server_is_told(config: Config, run: Any) -> None:
    """A session of a server that the configuration dropped is no silent extra row."""
    run.ok("gone", 1, {"short": {"p1": 0.01}})
    with pytest.raises(BenchError, match="has no server `gone`"):
        build_tables(run.folders, config)


def test_missing_launch_record_is_told(config: Config, tmp_path: Path) -> None:
    """A folder without launch.json names the file and the way out."""
    with pytest.raises(BenchError, match=r"launch\.json[\s\S]*run the session again"):
        build_tables([tmp_path], config)


def test_pooled_verdict_names_the_classes_it_lacks(
    config: Config, run: Any, records: Builders
) -> None:
    """A class that failed on one side is left out of the pooled ratio, and that is said."""
    both = {"short": {"p1": 0.02, "p2": 0.02}, "longform": {"p1": 0.02, "p2": 0.02}}
    for launch in (1, 2):
        run.ok("ar", launch, both)
        short = records["id"]("tree", launch, "short")
        requests = tuple(records["request"](short, prompt, 0.01) for prompt in ("p1", "p2"))
        longform = records["id"]("tree", launch, "longform")
        dead = records["cell"](longform, (), Status.OUT_OF_MEMORY)
        run.add("tree", launch, [records["cell"](short, requests), dead])
    comparisons = build_tables(run.folders, config)["comparisons"]
    row = only(comparisons, candidate="tree", relation="baseline", workload_class="all")
    assert row["verdict"] == "faster"
    assert row["verdict_detail"] == "faster by more than the margin of 2.0%; without longform"
    lost = only(comparisons, candidate="tree", relation="baseline", workload_class="longform")
    assert (lost["verdict"], lost["verdict_detail"]) == ("undecided", "tree was not measured")


def test_correction_for_many_comparisons_can_undo_a_difference(config: Config, run: Any) -> None:
    """A difference that one test alone would show is undecided beside others that show none."""
    # d of the tree: 0.288, 0.223, 0.134: mean 0.215, standard error 0.045, t(2) = 4.8, p = 0.04;
    # three comparisons: Holm's p is 0.08 at least
    speeds = {
        "ar": (0.0200, 0.0200, 0.0200),
        "chain": (0.0200, 0.0210, 0.0190),
        "tree": (0.0150, 0.0160, 0.0175),
    }
    for launch in (1, 2):
        for server, seconds in speeds.items():
            run.ok(server, launch, {"short": dict(zip("abc", seconds, strict=True))})
    comparisons = build_tables(run.folders, config)["comparisons"]
    row = only(comparisons, candidate="tree", relation="baseline", workload_class="all")
    assert row["p_value"] < 0.05 < row["p_holm"]
    assert row["verdict"] == "undecided"
    assert "not after the correction for many comparisons" in row["verdict_detail"]


def test_rows_stand_in_the_order_of_the_configuration(config: Config, two_rounds: Any) -> None:
    """Servers as configured, the pooled row before the classes, classes in their fixed order."""
    tables = build_tables(two_rounds.folders, config)
    classes = tables["classes"]
    assert list(classes["server"].drop_duplicates()) == ["ar", "chain", "tree"]
    assert list(classes["workload_class"])[:3] == ["short", "longform", "original"]
    assert list(tables["comparisons"]["workload_class"])[:3] == ["all", "short", "longform"]


def test_a_server_measured_later_is_undecided(config: Config, run: Any, records: Builders) -> None:
    """The same round numbers on another day: the ratio is shown, no verdict is given."""
    hour = 3600.0
    for server, launch, at_s in (("ar", 1, 0), ("ar", 2, hour), ("tree", 1, 9 * hour),
                                 ("tree", 2, 10 * hour)):  # fmt: skip
        cell = records["id"](server, launch, "short")
        seconds = 0.02 if server == "ar" else 0.01
        requests = tuple(records["request"](cell, prompt, seconds) for prompt in ("p1", "p2"))
        measured = records["cell"](cell, requests)
        late = measured.cell.model_copy(update={"started_unix_s": 1.7e9 + at_s})
        run.add(server, launch, [measured._replace(cell=late)])
    row = only(
        build_tables(run.folders, config)["comparisons"],
        candidate="tree",
        relation="baseline",
        workload_class="all",
    )
    assert row["speedup"] == pytest.approx(2.0)
    assert pd.isna(row["speedup_low"])
    assert row["verdict"] == "undecided"
    assert row["verdict_detail"].startswith("not interleaved: ")


def test_a_throttled_launch_takes_its_round_out_of_comparisons(
    config: Config, run: Any, records: Builders
) -> None:
    """A launch three times slower moves no ratio; its level is shown all the same."""
    for launch in (1, 2, 3):
        for server, s_per_token in (("ar", 0.02), ("chain", 0.01), ("tree", 0.01)):
            slow = server == "tree" and launch == 2
            cell = records["id"](server, launch, "short")
            requests = tuple(
                records["request"](cell, prompt, s_per_token * (3 if slow else 1))
                for prompt in ("p1", "p2")
            )
            measured = records["cell"](cell, requests)
            findings = (Finding(code=FindingCode.THROTTLED),) if slow else ()
            marked = measured.cell.model_copy(update={"findings": findings})
            run.add(server, launch, [measured._replace(cell=marked)])
    tables = build_tables(run.folders, config)
    row = only(tables["comparisons"], candidate="tree", relation="baseline", workload_class="short")
    assert row["speedup"] == pytest.approx(2.0)
    assert (row["n_launches"], row["noise_floor"]) == (2, 1.0)
    assert row["verdict_detail"].endswith("without the throttled rounds 2")
    assert only(tables["classes"], server="tree")["n_launches"] == 3


def test_shape_of_a_tree_by_hand(config: Config, two_rounds: Any) -> None:
    """Sums over steps: 35 nodes in 5 steps, 15 of them at depth 1, 15 on the spine."""
    trees = build_tables(two_rounds.folders, config)["trees"]
    row = only(trees, server="tree")
    assert (row["steps"], row["nodes_per_step"], row["root_children"]) == (40, 7.0, 3.0)
    assert (row["deepest"], row["deepest_accepted"], row["accepted_per_step"]) == (3, 3, 3.0)
    assert row["spine_share"] == pytest.approx(15 / 35)
    assert row["off_spine_share"] == pytest.approx(3 / 15)
    assert row["shape"] == "a tree"


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({"spine_nodes": 35}, "a chain: every node is on the spine"),
        ({"accepted_by_rank": (15, 0)}, "a chain in effect: nothing off the spine was accepted"),
        ({"accepted_by_rank": None}, "not reported"),
    ],
)
def test_a_tree_that_is_a_chain_is_called_one(
    config: Config, run: Any, records: Builders, changes: dict[str, Any], shape: str
) -> None:
    """No branch, or no use of one, makes a chain."""
    cell = records["id"]("tree", 1, "short")
    request = records["request"](cell, "p1", 0.01)
    tree = request.tree.model_copy(update=changes)
    run.add("tree", 1, [records["cell"](cell, (request.model_copy(update={"tree": tree}),))])
    assert only(build_tables(run.folders, config)["trees"], server="tree")["shape"] == shape


def test_answers_of_a_fixed_length_enter_no_pooled_figure(
    config: Config, two_rounds: Any, records: Builders
) -> None:
    """They have a row of their own in the table of classes; all that is pooled stays as it was."""
    before = build_tables(two_rounds.folders, config)
    cell = records["id"]("ar", 3, "short")
    measured = records["cell"](cell, (records["request"](cell, "p1", 5.0),))
    fixed = measured.cell.model_copy(update={"workload_class": "fixed length"})
    two_rounds.add("ar", 3, [measured._replace(cell=fixed)])
    after = build_tables(two_rounds.folders, config)
    for name in ("overall", "comparisons", "choice", "latency", "lossless", "crossover"):
        assert before[name].equals(after[name])
    row = only(after["classes"], workload_class="fixed length")
    assert row["tok_per_s"] == pytest.approx(1 / 5.0)


def test_replayed_conversations_are_paired_on_all_of_their_prompts(
    config: Config, run: Any, records: dict[str, Callable[..., Any]]
) -> None:
    """A unit's hash is that of its turns; with own histories, of the first prompt alone."""
    for server, second in (("ar", "b" * 64), ("chain", "c" * 64)):
        cell = records["id"](server, 1, "short")
        turns = [
            records["request"](cell, "talk", 0.01, turn=turn, prompt_sha256=sha)
            for turn, sha in enumerate(("a" * 64, second))
        ]
        run.add(server, 1, [records["cell"](cell, tuple(turns))])
    replayed = build_tables(run.folders, config)["units"]["prompt_sha256"]
    assert replayed.nunique() == 2
    own = config.workloads["short"].model_copy(update={"history": "own"})
    owning = config.model_copy(update={"workloads": {**config.workloads, "short": own}})
    assert set(build_tables(run.folders, owning)["units"]["prompt_sha256"]) == {"a" * 64}


def test_acceptance_is_of_the_prompts_that_enter_the_speed(
    config: Config, run: Any, records: Builders
) -> None:
    """p2 was measured in the first launch only: neither its speed nor its acceptance counts.

    p1 accepts 15 drafts in 5 steps, (15 + 5) ÷ 5 = 4; p2 5 in 5 steps.
    """
    few = SpecCounts(verify_steps=5, accepted_drafts=5, histogram=(0, 5))
    for launch, prompts in ((1, {"p1": {}, "p2": {"spec": few}}), (2, {"p1": {}})):
        cell = records["id"]("tree", launch, "short")
        asked = (records["request"](cell, name, 0.01, **more) for name, more in prompts.items())
        run.add("tree", launch, [records["cell"](cell, tuple(asked))])
    row = only(build_tables(run.folders, config)["classes"], server="tree")
    assert row["n_prompts"] == 1
    assert row["acceptance_length"] == pytest.approx(4.0)


def test_of_a_server_of_others_no_verdict_is_reached(config: Config, two_rounds: Any) -> None:
    """Two sessions on one running process say nothing of another launch; the interval stays."""
    of_us = only(
        build_tables(two_rounds.folders, config)["comparisons"],
        candidate="tree", relation="baseline", workload_class="all",
    )  # fmt: skip
    tree = config.servers["tree"].model_copy(update={"engine": "attach"})
    changed = config.model_copy(update={"servers": {**config.servers, "tree": tree}})
    comparisons = build_tables(two_rounds.folders, changed)["comparisons"]
    running = only(comparisons, candidate="tree", relation="baseline", workload_class="all")
    assert (of_us["verdict"], running["verdict"]) == ("faster", "undecided")
    assert running["verdict_detail"].startswith("tree: launched by others")
    assert of_us["verdict_detail"] in running["verdict_detail"]
    assert running["speedup_low"] == of_us["speedup_low"]
    chain = only(comparisons, candidate="chain", relation="baseline", workload_class="all")
    assert chain["verdict"] == "faster"
