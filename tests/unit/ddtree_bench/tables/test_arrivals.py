"""Times where requests arrive by themselves."""

from collections.abc import Callable
from typing import Any

import pytest

from ddtree_bench.config import Config
from ddtree_bench.status import Status
from ddtree_bench.tables import build_tables

Builders = dict[str, Callable[..., Any]]


def open_loop(records: Builders, launch: int = 1, status: Status = Status.OK) -> Any:
    """A cell of seven requests at 2 a second: waits of 0 to 6 s, 2.1 s of service each."""
    cell = records["id"]("ar", launch, "short").model_copy(update={"arrivals_per_s": 2.0})
    requests = tuple(
        records["request"](cell, f"p{n}", 0.1, wait_s=float(n), sent_unix_s=1000.0 + n)
        for n in range(7)
    )
    return records["cell"](cell, requests, status)


def value(frame: Any, metric: str) -> float:
    found = frame[(frame["metric"] == metric) & (frame["share"] == 0.5)]
    assert len(found) == 1
    return float(found["value"].iloc[0])


def test_times_from_due_hold_the_wait(config: Config, run: Any, records: Builders) -> None:
    """Median wait 3 s, service 21 × 0.1 = 2.1 s: 5.1 s from due. 7 requests in 6 + 2.1 s."""
    run.add("ar", 1, [open_loop(records)])
    frame = build_tables(run.folders, config)["arrivals"]
    assert value(frame, "wait_s") == 3.0
    assert value(frame, "end_s") == pytest.approx(2.1)
    assert value(frame, "end_due_s") == pytest.approx(5.1)
    assert value(frame, "ttft_due_s") - value(frame, "ttft_s") == pytest.approx(3.0)
    assert frame["served_per_s"].iloc[0] == pytest.approx(7 / 8.1)
    assert set(frame["n"]) == {7}


def test_few_questions_have_no_far_percentile(config: Config, run: Any, records: Builders) -> None:
    """Seven questions: a median, but no 90th percentile; the note says how many it needs."""
    run.add("ar", 1, [open_loop(records)])
    frame = build_tables(run.folders, config)["arrivals"]
    assert frame[frame["share"] == 0.9]["value"].isna().all()
    assert (frame[frame["share"] == 0.9]["note"] != "").all()


def test_an_open_loop_enters_no_other_table(
    config: Config, two_rounds: Any, records: Builders
) -> None:
    """All that is measured in a closed loop stays as it was."""
    before = build_tables(two_rounds.folders, config)
    two_rounds.add("ar", 3, [open_loop(records, 3)])
    after = build_tables(two_rounds.folders, config)
    changed = {name for name in before if not before[name].equals(after[name])}
    assert changed == {"arrivals", "environment", "servers"}


def test_a_failed_open_loop_is_a_failure_without_times(
    config: Config, run: Any, records: Builders
) -> None:
    """Its cell stands among the failures."""
    run.add("ar", 1, [open_loop(records, 1, Status.NOT_COLD)])
    tables = build_tables(run.folders, config)
    assert len(tables["arrivals"]) == 0
    assert list(tables["failures"]["status"]) == [Status.NOT_COLD.value]
