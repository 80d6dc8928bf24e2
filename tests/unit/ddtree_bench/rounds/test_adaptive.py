"""When a further round is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fakes import bench

from ddtree_bench.config import Config
from ddtree_bench.layout import RunLayout
from ddtree_bench.records import Launch
from ddtree_bench.rounds import adaptive
from ddtree_bench.rounds.adaptive import OUTPUTS, pooled_widths, reason_not_needed
from ddtree_bench.session.spec import SessionSpec
from ddtree_bench.status import Status

LAUNCHES = 2


def comparison(speedup: float = 2.0, half: float = 0.05, **changes: Any) -> dict[str, Any]:
    """A pooled comparison with the baseline, `speedup` ± `half`."""
    return {
        "relation": "baseline",
        "workload_class": "all",
        "n_launches": LAUNCHES,
        "speedup": speedup,
        "speedup_low": speedup - half,
        "speedup_high": speedup + half,
        **changes,
    }


def finished(server: str, launch: int, status: Status) -> Launch:
    """How a session of an earlier round ended."""
    return Launch(
        protocol=1,
        run="fake",
        server=server,
        launch=launch,
        attempt=1,
        status=status,
        detail="as the round before",
        started_unix_s=0,
        ended_unix_s=1,
    )


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Two rounds, up to five if an interval is wider than a tenth of its speed-up."""
    goal = "{launches: 2, adaptive: {max_launches: 5, width: 0.1}}"
    spec = bench(tmp_path / "bench", f"protocol: {goal}")
    server = spec.server
    return Config.model_validate(
        {
            "run": "fake",
            "servers": {"a": server, "b": server},
            "workloads": spec.workloads,
            "protocol": spec.protocol,
            "analysis": {"baseline": "a"},
        }
    )


@pytest.fixture
def decide(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The decision about a round, all earlier ones finished, from these comparisons."""

    def decided(launch: int, *rows: dict[str, Any], last: Status = Status.OK) -> str | None:
        for number in range(1, launch):
            for server in config.servers:
                folder = RunLayout.of("fake", tmp_path).session(server, number)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "cells.jsonl").touch()
                record = finished(server, number, last if number == launch - 1 else Status.OK)
                (folder / "launch.json").write_text(record.model_dump_json(), encoding="utf-8")
        frame = pd.DataFrame(list(rows), columns=list(comparison()))
        monkeypatch.setattr(adaptive, "build_tables", lambda *_: {"comparisons": frame})
        return reason_not_needed(config, launch, tmp_path)

    return decided


def test_narrow_intervals_end_the_rounds(decide):
    """2.0 ± 0.05 is 0.1 ÷ 2.0 = 5 % wide, a tenth was asked for."""
    assert decide(4, comparison()) == "widest interval 5.0% of its speed-up, 10.0% asked for"


def test_the_last_round_is_measured_without_looking(config, decide, tmp_path, monkeypatch):
    """Rounds 1 and 2 decide on round 4: noise that was small by chance gets one round more."""
    decide(4, comparison())
    asked = []

    def tables(folders, _):
        asked.extend(folders)
        return {"comparisons": pd.DataFrame([comparison()])}

    monkeypatch.setattr(adaptive, "build_tables", tables)
    assert reason_not_needed(config, 4, tmp_path) is not None
    assert sorted({folder.name for folder in asked}) == ["launch-1", "launch-2"]


def test_after_a_round_that_was_not_needed_none_is(decide):
    """Whatever the intervals of all rounds but it would say."""
    wide = comparison(half=1.0)
    assert decide(5, wide) is None
    assert decide(5, wide, last=Status.NOT_NEEDED) == "as the round before"


@pytest.mark.parametrize("speedup", [0.5, 1.0, 1.02, 4.0])
def test_what_an_interval_says_never_decides(decide, speedup):
    """Faster, slower or neither: 6 % of its speed-up is narrow, 12 % is wide, wherever it lies."""
    assert decide(4, comparison(speedup, 0.03 * speedup)) is not None
    assert decide(4, comparison(speedup, 0.06 * speedup)) is None


def test_every_server_and_concurrency_must_be_narrow(decide):
    """One wide interval among narrow ones asks for another round."""
    assert decide(4, comparison(), comparison(2.0, 0.5)) is None


def test_without_an_interval_nothing_is_narrow(decide):
    """One launch gives none; a run without any comparison neither."""
    assert decide(4, comparison(), comparison(speedup_low=None, speedup_high=None)) is None
    assert decide(4) is None


def test_a_server_that_never_ran_does_not_keep_the_others(decide):
    """It has no launch in common with the baseline, and more rounds would give it none."""
    nothing = dict.fromkeys(("speedup", "speedup_low", "speedup_high"))
    never = comparison(n_launches=0) | nothing
    assert decide(4, comparison(), never) is not None
    assert decide(4, never) is None


def test_only_pooled_comparisons_with_the_baseline_count():
    """A class, or a tree against a chain, may stay wide."""
    rows = [
        comparison(),
        comparison(half=9.0, workload_class="short"),
        comparison(half=9.0, relation="chain"),
    ]
    assert list(pooled_widths(pd.DataFrame(rows))) == [pytest.approx(0.05)]


@pytest.mark.parametrize("launch", [1, 2])
def test_the_least_number_of_rounds_is_always_measured(decide, launch):
    """However narrow the intervals are."""
    assert decide(launch, comparison(half=0.0)) is None


@pytest.mark.parametrize("missing", OUTPUTS)
def test_a_round_out_of_order_is_measured(decide, config, tmp_path, missing):
    """With a session of an earlier round missing or half there, nothing can be said."""
    assert decide(4, comparison()) is not None
    (RunLayout.of("fake", tmp_path).session("b", 3) / missing).unlink()
    assert reason_not_needed(config, 4, tmp_path) is None


def test_only_further_rounds_know_the_whole_run(config):
    """Round 2 is measured in any case and does not change with another server; round 3 does."""
    assert SessionSpec.of(config, "a", 2).needed_by is None
    third = SessionSpec.of(config, "a", 3)
    assert third.needed_by is not None
    assert set(third.needed_by.servers) == {"a", "b"}
    retitled = config.model_copy(update={"title": "another"})
    assert SessionSpec.of(retitled, "a", 3) == third
    assert SessionSpec.model_validate_json(third.to_json()) == third
