"""Right answers, and what tags split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from ddtree_bench.columns import QUALITY, TAGS
from ddtree_bench.config import Config
from ddtree_bench.records import Check
from ddtree_bench.tables.quality import QualityTable
from ddtree_bench.tables.tags import TagTable

Builders = dict[str, Callable[..., Any]]


def check(valid: bool, kind: str = "number") -> dict[str, Any]:
    return {"check": Check(kind=kind, valid=valid)}


@pytest.fixture
def quality(config: Config, records: Builders) -> Callable[..., pd.DataFrame]:
    """The table of cells, each `server, launch, {prompt: valid or valid by turn}`."""

    def make(*cells: tuple[str, int, dict[str, Any]]) -> pd.DataFrame:
        table = QualityTable(config)
        for server, launch, answers in cells:
            cell = records["id"](server, launch, "short")
            requests = tuple(
                records["request"](cell, prompt, 0.01, turn=turn, **check(valid))
                for prompt, said in answers.items()
                for turn, valid in enumerate([said] if isinstance(said, bool) else said)
            )
            table.add_cell(records["cell"](cell, requests))
        return table.frame()

    return make


def row(frame: pd.DataFrame, server: str) -> pd.Series:
    (found,) = [one for _, one in frame.iterrows() if one["server"] == server]
    return found


def test_shares_and_their_difference_by_hand(quality: Callable[..., pd.DataFrame]) -> None:
    """Plain right on 3 of 4, the tree on 2 of 4; they differ on one prompt, so p is 1."""
    frame = quality(
        ("ar", 1, {"a": True, "b": True, "c": True, "d": False}),
        ("tree", 1, {"a": True, "b": True, "c": False, "d": False}),
    )
    assert list(frame.columns) == list(QUALITY.names)
    ar, tree = row(frame, "ar"), row(frame, "tree")
    assert (ar["n"], ar["valid"], ar["share"]) == (4, 3, 0.75)
    assert ar["pairs"] == 0
    assert pd.isna(ar["difference"])
    # (0 − 1) ÷ 4
    assert (tree["pairs"], tree["difference"]) == (4, pytest.approx(-0.25))
    assert tree["difference_low"] < -0.25 < tree["difference_high"]
    assert tree["mcnemar_p"] == 1.0


def test_a_prompt_counts_once(quality: Callable[..., pd.DataFrame]) -> None:
    """By its first answer: repeats of a greedy server add nothing."""
    frame = quality(("ar", 1, {"a": True, "b": False}), ("ar", 2, {"a": False, "b": False}))
    assert (row(frame, "ar")["n"], row(frame, "ar")["valid"]) == (2, 1)


def test_a_loop_is_right_if_all_of_it_is(quality: Callable[..., pd.DataFrame]) -> None:
    """One malformed call makes the loop wrong, wherever it stands."""
    frame = quality(("ar", 1, {"a": [True, True], "b": [False, True], "c": [True, False]}))
    assert (row(frame, "ar")["n"], row(frame, "ar")["valid"]) == (3, 1)


def test_only_prompts_of_both_sides_are_compared(quality: Callable[..., pd.DataFrame]) -> None:
    """A prompt that the baseline did not answer enters the share, not the difference."""
    frame = quality(("ar", 1, {"a": True}), ("tree", 1, {"a": True, "b": False}))
    tree = row(frame, "tree")
    assert (tree["n"], tree["share"], tree["pairs"], tree["difference"]) == (2, 0.5, 1, 0.0)


def test_tags_split_speed_and_acceptance(config: Config, records: Builders) -> None:
    """Geometric mean of speeds, pooled acceptance, for each value of each tag."""
    cell = records["id"]("tree", 1, "short")
    tagged = {
        "p1": (0.01, {"language": "en", "timestamp_s": "3"}),
        "p2": (0.04, {"language": "en"}),
        "p3": (0.01, {"language": "de"}),
    }
    requests = tuple(
        records["request"](cell, prompt, seconds, tags=tags)
        for prompt, (seconds, tags) in tagged.items()
    )
    table = TagTable()
    table.add_cell(records["cell"](cell, requests))
    original = records["id"]("tree", 1, "original")
    odd = records["request"](original, "p", 0.01, tags={"language": "en"})
    table.add_cell(records["cell"](original, (odd,)))
    frame = table.frame()
    assert list(frame.columns) == list(TAGS.names)
    # a time stamp of a trace is no group, class `original` is out
    assert list(frame["value"]) == ["en", "de"]
    english = frame.iloc[0]
    # √(100 · 25) = 50 tok/s; every step yields 4 tokens
    assert (english["n_requests"], english["tok_per_s"]) == (2, pytest.approx(50.0))
    assert english["acceptance_length"] == pytest.approx(4.0)
    assert english["length_share"] == 1.0


def test_plain_decoding_has_no_acceptance(config: Config, records: Builders) -> None:
    """Its cell is empty, not 1."""
    cell = records["id"]("ar", 1, "short")
    request = records["request"](cell, "p", 0.01, tags={"language": "en"})
    table = TagTable()
    table.add_cell(records["cell"](cell, (request,)))
    assert pd.isna(table.frame().iloc[0]["acceptance_length"])
