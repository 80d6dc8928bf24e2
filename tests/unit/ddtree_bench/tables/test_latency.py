from typing import Any

import pandas as pd
import pytest

from ddtree_bench.config import Limits
from ddtree_bench.tables.latency import PERCENTILES, goodput_frame, latency_frame


def requests(count: int, launches: int = 1, **changes: Any) -> pd.DataFrame:
    """Requests of one server: question n took n ms to its first token."""
    rows = [
        {"server": "a", "workload": "short", "workload_class": "short", "concurrency": 1,
         "launch": launch, "prompt_id": f"p{number}", "turn": 0,
         **dict.fromkeys(PERCENTILES, number / 1000), **changes}
        for launch in range(1, launches + 1) for number in range(1, count + 1)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def row(frame: pd.DataFrame, share: float, workload_class: str = "all") -> pd.Series:
    wanted = (frame["metric"] == "ttft_s") & (frame["workload_class"] == workload_class)
    (found,) = (r for _, r in frame[wanted & (frame["share"] == share)].iterrows())
    return found


def test_percentiles_by_hand() -> None:
    """Of 1 to 100 ms the 90th percentile is 90 ms, between two values of the sample."""
    found = row(latency_frame(requests(100), 0.95), 0.9)
    assert found["value"] == 0.090
    # B(100, 0.9): P(≤ 83) = 0.021, P(≤ 84) = 0.040; P(≥ 96) = 0.024
    assert (found["low"], found["high"]) == (0.084, 0.096)


def test_no_percentile_without_enough_questions() -> None:
    """Twenty questions give no 99th percentile, however often they were asked."""
    found = row(latency_frame(requests(20, launches=30), 0.95), 0.99)
    assert pd.isna(found["value"])
    assert (found["n"], found["n_questions"]) == (600, 20)
    assert "at least 368 needed" in found["note"]


def test_class_original_is_not_pooled() -> None:
    """The three original prompts have rows in no pooled percentile."""
    frame = latency_frame(requests(10, workload_class="original"), 0.95)
    assert frame.empty


def test_what_was_not_measured_does_not_count() -> None:
    """A request that was not streamed has no time to its first token."""
    some = requests(10)
    some.loc[:4, "ttft_s"] = None
    assert row(latency_frame(some, 0.95), 0.5)["n"] == 5


def test_goodput_by_hand() -> None:
    """Of 1 to 10 ms, 4 keep a limit of 4 ms; in 2 s of cells that is 2 a second of 5."""
    cells = pd.DataFrame(
        [{"server": "a", "concurrency": 1, "workload_class": "short", "seconds": 2.0}]
    )
    limits = Limits(ttft_s=0.004, end_s=0.008)
    (found,) = (r for _, r in goodput_frame(requests(10), cells, limits, 0.95).iterrows())
    assert (found["within"], found["share"]) == (4, 0.4)
    assert (found["requests_per_s"], found["goodput_per_s"]) == (5.0, 2.0)
    # Wilson, 4 of 10: [0.168, 0.687]
    assert found["share_low"] == pytest.approx(0.168, abs=1e-3)
    assert found["share_high"] == pytest.approx(0.687, abs=1e-3)


def test_no_limits_no_goodput() -> None:
    """Without a stated limit the table is empty."""
    cells = pd.DataFrame(columns=["server", "concurrency", "workload_class", "seconds"])
    assert goodput_frame(requests(10), cells, Limits(), 0.95).empty
