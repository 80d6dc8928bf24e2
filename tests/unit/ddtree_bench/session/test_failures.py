"""What failed stays told, under the same conditions only."""

from pathlib import Path

from fakes import cell_id, cell_record, request_record

from ddtree_bench.records import Launch
from ddtree_bench.session.failures import FailureHistory, failures_of
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.status import Status

SHORT = cell_id()
DEAD = MeasuredCell(
    cell_record(status=Status.DIED_IN_REQUEST, detail="exit code 7"),
    (request_record(), request_record(prompt_id="p1", status=Status.DIED_IN_REQUEST)),
)
REST = MeasuredCell(
    cell_record(cell=cell_id(workload="longform"), status=Status.NOT_RUN, detail="died"), ()
)


def launch(attempt: int = 1, status: Status = Status.OK) -> Launch:
    """An attempt; each has a time of its own."""
    return Launch(
        protocol=1,
        run="fake",
        server="one",
        launch=1,
        attempt=attempt,
        status=status,
        log_tail="last words" if status.failed else "",
        started_unix_s=1000.0 * attempt,
        ended_unix_s=1000.0 * attempt + 500,
    )


def test_launch_requests_and_cells_are_told_in_this_order():
    """A request that was well is no failure; a cell that was not run is one of the attempt."""
    found = list(failures_of(launch(status=Status.DIED_IN_REQUEST), [DEAD, REST]))
    assert [(each.level, each.prompt_id) for each in found] == [
        ("launch", None),
        ("request", "p1"),
        ("cell", None),
        ("cell", None),
    ]
    assert found[0].log_tail == "last words"


def test_an_attempt_is_told_to_later_ones(tmp_path: Path):
    """Not to itself, and without the cells that it did not come to."""
    history = FailureHistory(tmp_path / "failures.jsonl", "here")
    first = launch(status=Status.DIED_IN_REQUEST)
    history.add(first, [DEAD, REST])
    history.add(launch(2), [MeasuredCell(cell_record(), (request_record(),))])
    cells = [SHORT, REST.cell.cell]
    assert history.before(first, cells) == ()
    told = history.before(launch(3), cells)
    assert [each.level for each in told] == ["launch", "request", "cell"]
    assert [each.level for each in history.before(launch(3), [])] == ["launch"]
    assert FailureHistory(history.path, "elsewhere").before(launch(3), cells) == ()


def test_a_damaged_line_costs_itself_only(tmp_path: Path, caplog):
    """And is warned of."""
    history = FailureHistory(tmp_path / "failures.jsonl", "here")
    history.path.write_text("{half a li\n", encoding="utf-8")
    history.add(launch(status=Status.HUNG), [])
    assert [each.status for each in history.before(launch(2), [])] == [Status.HUNG]
    assert "failures.jsonl:1" in caplog.text
