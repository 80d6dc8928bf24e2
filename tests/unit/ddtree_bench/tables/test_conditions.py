"""What was noticed about launches and cells, as tables."""

from typing import Any

import pytest

from ddtree_bench.config import Config
from ddtree_bench.findings import FindingCode
from ddtree_bench.records import Finding, GpuLoad, HostLoad, Spread, Startup, StartupPhase
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.status import Status
from ddtree_bench.tables import build_tables


def even(value: float) -> Spread:
    """A reading that does not change."""
    return Spread(low=value, mean=value, high=value)


def one_cell(records: Any, **changes: Any) -> MeasuredCell:
    """An ok cell of one request of 21 tokens."""
    cell = records["id"]("ar", 1, "short")
    measured = records["cell"](cell, (records["request"](cell, "p1", 0.01, overshoot_tokens=2),))
    return MeasuredCell(measured.cell.model_copy(update=changes), measured.requests)


def test_findings_of_launches_and_cells_are_rows(config: Config, run: Any, records: Any) -> None:
    """And a cell's codes stand in its own row; it stays a measured cell."""
    eager = Finding(code=FindingCode.EAGER_DECODE, count=3, detail="log line 7: x")
    cell = one_cell(records, findings=(eager, Finding(code=FindingCode.BUSY_HOST)))
    run.add("ar", 1, [cell], findings=[eager])
    tables = build_tables(run.folders, config)
    found = tables["findings"]
    assert list(found["level"]) == ["cell", "cell", "launch"]
    assert list(found["code"]) == ["busy_host", "eager_decode", "eager_decode"]
    assert found["count"].iloc[1] == 3
    assert found["sentence"].iloc[1] == FindingCode.EAGER_DECODE.sentence
    row = tables["cells"].iloc[0]
    assert (row["status"], row["flags"]) == (Status.OK, "eager_decode busy_host")
    assert len(tables["classes"]) == 1


def test_startup_is_a_row_a_phase(config: Config, run: Any, records: Any) -> None:
    """In the order of the log; what is no phase is a fact of the environment."""
    phases = (
        StartupPhase(name="load X", elapsed_s=0.5, used_gib=1.25),
        StartupPhase(name="capture target verify", tokens_per_request=8, batch_sizes=(1, 2)),
    )
    startup = Startup(phases=phases, kv_pool_tokens=1000)
    run.add("ar", 1, [one_cell(records)], startup=startup.model_dump())
    tables = build_tables(run.folders, config)
    table = tables["startup"]
    assert list(table["phase"]) == ["load X", "capture target verify"]
    assert table["elapsed_s"].iloc[0] == 0.5
    assert table["elapsed_s"].isna().iloc[1]  # it did not end
    assert table["batch_sizes"].iloc[1] == "1 2"
    facts = dict(zip(tables["environment"]["name"], tables["environment"]["value"], strict=True))
    assert facts["startup.kv_pool_tokens"] == "1000"


def test_devices_of_a_cell(config: Config, run: Any, records: Any) -> None:
    """The host and each GPU have a row; energy per token is Σ joules ÷ tokens."""
    host = HostLoad(samples=4, busy_share=even(0.5), foreign_share=even(0.1), load_1m=even(2))
    gpus = [
        GpuLoad(gpu="GPU-a", samples=4, power_w=even(300), energy_j=420.0, throttled_share=0.0),
        GpuLoad(gpu="GPU-b", samples=4, energy_j=210.0, throttle_reasons=("power cap",)),
    ]
    run.add("ar", 1, [one_cell(records, host=host, gpus=tuple(gpus))])
    tables = build_tables(run.folders, config)
    table = tables["telemetry"].set_index("device")
    assert list(table.index) == ["GPU-a", "GPU-b", "host"]
    assert table.loc["host", "foreign_share"] == pytest.approx(0.1)
    assert table.loc["GPU-a", "power_mean_w"] == 300
    assert table.loc["GPU-b", "throttle_reasons"] == "power cap"
    # (420 + 210) J ÷ 21 tokens
    assert tables["cells"]["joules_per_token"].iloc[0] == pytest.approx(30)
    assert tables["cells"]["overshoot_tokens"].iloc[0] == 2


def test_unknown_energy_of_one_gpu_leaves_the_sum_unknown(
    config: Config, run: Any, records: Any
) -> None:
    """Half of the energy is not the energy."""
    gpus = (GpuLoad(gpu="a", samples=1, energy_j=420.0), GpuLoad(gpu="b", samples=1))
    run.add("ar", 1, [one_cell(records, gpus=gpus)])
    assert build_tables(run.folders, config)["cells"]["joules_per_token"].isna().all()


def test_cells_of_old_tell_how_many_were_in_flight(config: Config, run: Any, records: Any) -> None:
    """From their requests' times: 21 tokens of 10 and of 20 ms are 0.63 s in 0.42 s, of eight."""
    cell = records["id"]("ar", 1, "short").model_copy(update={"concurrency": 8})
    requests = tuple(records["request"](cell, *each) for each in (("p1", 0.01), ("p2", 0.02)))
    run.add("ar", 1, [records["cell"](cell, requests)])
    tables = build_tables(run.folders, config)
    row = tables["cells"].iloc[0]
    assert row["mean_in_flight"] == pytest.approx(1.5)
    assert (row["max_in_flight"], row["flags"]) == (2, "underfilled")
    assert list(tables["findings"]["detail"]) == ["1.5 of 8 on average, 75% are the limit"]


def test_a_finding_of_the_session_is_not_doubled(config: Config, run: Any, records: Any) -> None:
    """Newer cells say so themselves."""
    cell = records["id"]("ar", 1, "short").model_copy(update={"concurrency": 8})
    measured = records["cell"](cell, (records["request"](cell, "p1", 0.01),))
    said = (Finding(code=FindingCode.UNDERFILLED, detail="as measured"),)
    marked = measured.cell.model_copy(update={"findings": said})
    run.add("ar", 1, [MeasuredCell(marked, measured.requests)])
    tables = build_tables(run.folders, config)
    assert list(tables["findings"]["detail"]) == ["as measured"]
