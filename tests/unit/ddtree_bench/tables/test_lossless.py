from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest

from ddtree_bench.config import Config
from ddtree_bench.records import Check
from ddtree_bench.session.logprobs import TopLogprobs, answer_sha256
from ddtree_bench.tables import build_tables
from ddtree_bench.tables.lossless import Answer, LosslessTable

Answers = dict[str, Sequence[dict[str, Any]]]
Make = Callable[..., LosslessTable]
LOOP = {"output_ids": (4, 5, 6) * 10}
FAILED = {"check": Check(kind="json", valid=False)}


@pytest.fixture
def table(config: Config, records: dict[str, Callable[..., Any]]) -> Make:
    """A table from what each server answered to the questions p0, p1, … in one launch."""

    def make(answers: Answers) -> LosslessTable:
        made = LosslessTable(config)
        for server, some in answers.items():
            cell = records["id"](server, 1, "short")
            requests = tuple(
                records["request"](cell, f"p{number}", 0.01, **changes)
                for number, changes in enumerate(some)
            )
            made.add_cell(records["cell"](cell, requests))
        return made

    return make


def row(table: LosslessTable, server: str = "tree") -> pd.Series:
    return table.frame().set_index("server").loc[server]


def third(answer: Answer, top: tuple[tuple[int, float], ...]) -> TopLogprobs:
    """What the target thought at an answer's third place."""
    workload, prompt_id, turn, sha = answer.question
    return TopLogprobs(
        workload=workload, prompt_id=prompt_id, turn=turn, prompt_sha256=sha, position=2, top=top
    )


def place(table: Make, top: tuple[tuple[int, float], ...], emitted: int = 9) -> pd.Series:
    """The tree's row, its third token `emitted` where the baseline said 3."""
    made = table({"ar": [{"output_ids": (1, 2, 3)}], "tree": [{"output_ids": (1, 2, emitted)}]})
    made.add_logprobs([third(made._answers["ar"][0], top)])
    return row(made)


def test_a_near_tie_is_no_fault(table: Make) -> None:
    """The emitted token lies 0.02 nats below the first choice: rounding decides."""
    found = place(table, ((3, -0.70), (9, -0.72)))
    assert (found["near_ties"], found["regret_faults"], found["not_judged"]) == (1, 0, 0)
    assert found["worst_regret_nats"] == pytest.approx(0.02)
    assert found["verdict"] == "sound"


def test_a_regret_above_the_tie_is_a_fault(table: Make) -> None:
    """The target would not have said it: one such token makes the server faulty."""
    found = place(table, ((3, -0.1), (9, -3.1)))
    assert (found["regret_faults"], found["verdict"]) == (1, "faulty")
    assert found["verdict_detail"] == "1 tokens more than 0.1 nats below the first choice"


def test_workloads_that_share_a_prompt_have_places_of_their_own(
    config: Config, records: dict[str, Callable[..., Any]]
) -> None:
    """The same prompt under two workloads, answered otherwise: each is judged by its own.

    In `short` token 9 lies 0.02 nats below the first choice, in `longform` 3 nats.
    """
    made = LosslessTable(config)
    for server, emitted in (("ar", 3), ("tree", 9)):
        for workload in ("short", "longform"):
            cell = records["id"](server, 1, workload)
            said = records["request"](cell, "p0", 0.01, output_ids=(1, 2, emitted))
            made.add_cell(records["cell"](cell, (said,)))
    short, longform = made._answers["ar"]
    assert short.question[1:] == longform.question[1:]
    near, far = ((3, -0.70), (9, -0.72)), ((3, -0.1), (9, -3.1))
    made.add_logprobs([third(short, near), third(longform, far)])
    found = row(made)
    assert (found["near_ties"], found["regret_faults"]) == (1, 1)


def test_what_the_baseline_regrets_against_itself_is_a_near_tie(table: Make) -> None:
    """Plain decoding's own later answer lies 0.25 nats below its first: so may a tree's."""
    made = table({"ar": [{"output_ids": (1, 2, 3)}], "tree": [{"output_ids": (1, 2, 9)}]})
    made._answers["ar"] += made._answers["tree"]
    top = ((3, -0.50), (9, -0.75))
    made.add_logprobs([third(made._answers["ar"][0], top)])
    found = row(made)
    assert (found["near_ties"], found["regret_faults"], found["near_tie_nats"]) == (1, 0, 0.25)
    assert row(made, "ar")["verdict"] == "sound"


def test_without_log_probabilities_a_difference_is_not_judged(table: Make) -> None:
    """Nobody knows what the target thought there."""
    found = row(table({"ar": [{"output_ids": (1, 2)}], "tree": [{"output_ids": (1, 3)}]}))
    assert (found["not_judged"], found["regret_faults"], found["verdict"]) == (1, 0, "sound")
    assert pd.isna(found["worst_regret_nats"])


def test_a_server_that_loops_is_faulty(table: Make) -> None:
    """Seven questions on which only the baseline is sound: 2 · 0.5⁷ = 0.016, half of 5 % is due."""
    found = row(table({"ar": [{}] * 7, "tree": [LOOP] * 7}))
    assert (found["loops"], found["worse"], found["better"]) == (7, 7, 0)
    assert found["verdict"] == "faulty"


def test_six_loops_may_be_chance(table: Make) -> None:
    """2 · 0.5⁶ = 0.031 is above 2.5 %."""
    assert row(table({"ar": [{}] * 6, "tree": [LOOP] * 6}))["verdict"] == "sound"


def test_a_server_that_does_not_end_is_faulty(table: Make) -> None:
    """Cut by the limit where plain decoding ends; where both are cut, nothing is told."""
    ends, cut = {"finish_reason": "stop"}, {"finish_reason": "length"}
    found = row(table({"ar": [ends] * 7 + [cut] * 3, "tree": [cut] * 10}))
    assert (found["cut"], found["longer"], found["shorter"]) == (10, 7, 0)
    assert found["verdict_detail"] == (
        "cut by the limit on 7 questions where plain ends, 0 reversed"
    )
    assert row(table({"ar": [cut] * 10, "tree": [ends] * 10}))["verdict"] == "sound"


def test_what_the_target_does_itself_is_no_fault(table: Make) -> None:
    """A target that loops and breaks its JSON is what a lossless server repeats."""
    some = [LOOP] * 6 + [FAILED] * 6
    found = row(table({"ar": some, "tree": some}))
    assert (found["loops"], found["broken"], found["worse"]) == (6, 6, 0)
    assert found["verdict"] == "sound"


def test_what_goes_either_way_is_no_fault(table: Make) -> None:
    """Ten questions worse and four better: two-sided p = 0.18."""
    plain: list[dict[str, Any]] = [{}] * 10 + [FAILED] * 4
    tree: list[dict[str, Any]] = [FAILED] * 10 + [{}] * 4
    found = row(table({"ar": plain, "tree": tree}))
    assert (found["worse"], found["better"], found["verdict"]) == (10, 4, "sound")


def test_an_empty_answer_is_counted(table: Make) -> None:
    """No token at all, or a lone stop token without text."""
    empty = [{"output_ids": ()}, {"output_ids": (2,), "completion_tokens": 1, "text": ""}]
    assert row(table({"ar": [{}] * 2, "tree": empty}))["empty"] == 2


def test_a_faulty_server_keeps_its_numbers_not_its_rank(config: Config, run: Any,
                                                        records: Any) -> None:  # fmt: skip
    """Its speed-up stands with its interval, the verdict is `faulty`; others note it."""
    prompts = [f"p{number}" for number in range(7)]
    for launch in (1, 2):
        for server, seconds, changes in (("ar", 0.02, {}), ("chain", 0.01, {}),
                                         ("tree", 0.005, LOOP)):  # fmt: skip
            cell = records["id"](server, launch, "short")
            requests = tuple(
                records["request"](cell, prompt, seconds, text="x", **changes) for prompt in prompts
            )
            run.add(server, launch, [records["cell"](cell, requests)])
    comparisons = build_tables(run.folders, config)["comparisons"]
    found = comparisons[
        (comparisons["candidate"] == "tree") & (comparisons["relation"] == "baseline")
    ]
    assert set(found["verdict"]) == {"faulty"}
    assert found["speedup"].to_numpy() == pytest.approx([4.0, 4.0])
    assert found["verdict_detail"].str.contains("by speed alone: faster by more than").all()


def test_answers_of_a_fixed_length_are_not_judged(
    config: Config, records: dict[str, Callable[..., Any]]
) -> None:
    """Past the end of its text every model runs in circles."""
    made = LosslessTable(config)
    cell = records["id"]("tree", 1, "short")
    measured = records["cell"](cell, (records["request"](cell, "p", 0.01, **LOOP),))
    fixed = measured.cell.model_copy(update={"workload_class": "fixed length"})
    made.add_cell(measured._replace(cell=fixed))
    assert row(made)["loops"] == 0
    made.add_cell(measured)
    assert row(made)["loops"] == 1


def test_a_baseline_that_errs_hides_nobodys_faults(table: Make) -> None:
    """Its own regret of 3 nats widens the tie of 0.1 to 0.5, and it is faulty itself."""
    made = table({"ar": [{"output_ids": (1, 2, 3)}], "tree": [{"output_ids": (1, 2, 9)}]})
    made._answers["ar"] += made._answers["tree"]
    top = ((3, -0.1), (9, -3.1))
    made.add_logprobs([third(made._answers["ar"][0], top)])
    assert row(made)["near_tie_nats"] == pytest.approx(0.5)
    assert row(made)["verdict"] == row(made, "ar")["verdict"] == "faulty"


def recorded_of(table: Make, recorded: tuple[int, ...]) -> tuple[pd.Series, pd.Series]:
    """Rows of tree and baseline, which said 1 2 3 first; the places are those of this answer.

    The tree says 9 in the third place, which after the recorded answer lies 3 nats below.
    """
    made = table({"ar": [{"output_ids": (1, 2, 3)}], "tree": [{"output_ids": (1, 2, 9)}]})
    found = third(made._answers["ar"][0], ((3, -0.1), (9, -3.1)))
    of_answer = {"answer_sha256": answer_sha256(recorded)}
    made.add_logprobs([found.model_copy(update=of_answer)])
    return row(made), row(made, "ar")


def test_places_of_another_answer_judge_nobody(table: Make) -> None:
    """With 16 in flight the baseline had said 1 5 3: what it thought there is of another text."""
    tree, plain = recorded_of(table, (1, 5, 3))
    assert (tree["not_judged"], tree["regret_faults"], tree["verdict"]) == (1, 0, "sound")
    assert pd.isna(tree["stray_places"])
    assert plain["stray_places"] == 1
    assert plain["verdict_detail"] == "1 recorded places are of other answers and left out"


def test_places_of_the_reference_judge(table: Make) -> None:
    """The same places, of the answer that is compared with."""
    tree, plain = recorded_of(table, (1, 2, 3))
    assert (tree["regret_faults"], tree["verdict"]) == (1, "faulty")
    assert plain["stray_places"] == 0
