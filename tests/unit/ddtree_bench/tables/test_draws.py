"""The table of draws: who is tested against whom, and what follows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ddtree_bench.config import DRAWN, Config
from ddtree_bench.tables import build_tables
from ddtree_bench.tables.draws import DrawTable, sampling_faults

Make = Callable[[Mapping[str, Mapping[str, Sequence[int]]]], pd.DataFrame]
COIN = [1, 2] * 50
LOADED = [1] * 80 + [2] * 20


@pytest.fixture
def cells(records: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """A cell of answers of one token each, by prompt."""

    def make(server: str, prompts: Mapping[str, Sequence[int]]) -> Any:
        cell = records["id"](server, 1, "short")
        requests = tuple(
            records["request"](cell, prompt, 0.01, output_ids=(token,), completion_tokens=1)
            for prompt, tokens in prompts.items()
            for token in tokens
        )
        measured = records["cell"](cell, requests)
        return measured._replace(cell=measured.cell.model_copy(update={"workload_class": DRAWN}))

    return make


@pytest.fixture
def table(config: Config, cells: Callable[..., Any]) -> Make:
    def make(servers: Mapping[str, Mapping[str, Sequence[int]]]) -> pd.DataFrame:
        made = DrawTable(config)
        for server, prompts in servers.items():
            made.add_cell(cells(server, prompts))
        return made.frame().set_index(["server", "prompt_id"])

    return make


def test_a_prompt_is_tested_against_the_baselines_draws_of_it(table: Make) -> None:
    """80:20 against 50:50: 4 cells of 15² ÷ 65 or ÷ 35 give χ² 19.78, Holm's p of 4 tests."""
    frame = table({"ar": {"p": COIN}, "chain": {"p": LOADED}})
    row = frame.loc["chain", "p"]
    assert row["chi_square"] == pytest.approx(2 * 15**2 / 65 + 2 * 15**2 / 35)
    assert (row["n"], row["n_reference"], row["answers"], row["df"]) == (100, 100, 2, 1)
    assert row["p_holm"] == pytest.approx(4 * row["p_value"])
    assert row["verdict"] == "differs"


def test_prompts_add_to_one_row(table: Make) -> None:
    """A small bias of every prompt is seen over all of them together."""
    slight = [1] * 65 + [2] * 35
    names = [f"p{n}" for n in range(8)]
    frame = table({"ar": dict.fromkeys(names, COIN), "chain": dict.fromkeys(names, slight)})
    rows = frame.loc["chain"]
    assert set(rows.loc[names, "verdict"]) == {"same"}
    assert (rows.loc["all", "df"], rows.loc["all", "verdict"]) == (8, "differs")


def test_the_baseline_is_tested_against_itself(table: Make) -> None:
    """Its first 50 draws against its last 50; it is nobody's fault what comes out."""
    frame = table({"ar": {"p": [1] * 45 + [2] * 10 + [1] * 5 + [2] * 40}})
    row = frame.loc["ar", "p"]
    assert (row["n"], row["n_reference"], row["verdict"]) == (50, 50, "differs")
    assert sampling_faults(frame.reset_index(), "ar") == {}


def test_a_server_that_never_varies_beside_one_that_does_not_either(table: Make) -> None:
    """Argmax on both sides tells nothing of a sampler: neither pass nor fail."""
    frame = table({"ar": {"p": [1] * 100}, "tree": {"p": [1] * 100}})
    assert set(frame["verdict"]) == {"does not sample"}
    assert frame["p_value"].isna().all()
    assert sampling_faults(frame.reset_index(), "ar") == {}


def test_argmax_beside_a_baseline_that_samples_is_a_fault(table: Make) -> None:
    """It is told from the baseline's distribution like any other wrong sampler."""
    frame = table({"ar": {"p": COIN}, "tree": {"p": [1] * 100}})
    assert frame.loc["tree", "p"]["verdict"] == "differs"
    assert sampling_faults(frame.reset_index(), "ar").keys() == {"tree"}


@pytest.mark.parametrize(
    ("baseline", "detail"),
    [({}, "the baseline has no draws of it"), ({"p": [1] * 100}, "the baseline does not sample")],
)
def test_without_a_reference_nothing_is_compared(
    table: Make, baseline: Mapping[str, Sequence[int]], detail: str
) -> None:
    """A sampler is judged against plain decoding's draws only."""
    row = table({"ar": baseline, "tree": {"p": COIN}}).loc["tree", "all"]
    assert (row["verdict"], row["verdict_detail"]) == ("not compared", detail)


def test_two_right_samplers_are_the_same(table: Make) -> None:
    """1,000 draws of five tokens each from one distribution; by chance 5 % of seeds would fail."""
    rng = np.random.default_rng(3)
    drawn = [rng.integers(0, 5, 1000).tolist() for _ in range(2)]
    frame = table({"ar": {"p": drawn[0]}, "tree": {"p": drawn[1]}})
    assert set(frame["verdict"]) == {"same"}


def test_draws_are_in_no_other_table_and_make_a_server_faulty(
    config: Config, run: Any, cells: Callable[..., Any], two_rounds: Any
) -> None:
    """The tree keeps its speed-up and loses its rank; its draws are no requests of a class."""
    plain = build_tables(two_rounds.folders, config)
    for server, tokens in {"ar": COIN, "tree": LOADED}.items():
        run.add(server, 3, [cells(server, {"p": tokens})])
    tables = build_tables(run.folders, config)
    for name in ("requests", "cells", "units", "classes", "overall"):
        pd.testing.assert_frame_equal(tables[name], plain[name])
    verdicts = tables["comparisons"].set_index("candidate")["verdict"]
    assert set(verdicts["tree"]) == {"faulty"}
    assert "faulty" not in set(verdicts["chain"])
