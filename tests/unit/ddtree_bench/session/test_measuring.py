from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from fakes import bench, cell_id, cell_record, request_record

from ddtree_bench.errors import RequestError
from ddtree_bench.session import measuring
from ddtree_bench.session.launch import Live
from ddtree_bench.session.measuring import is_lost, measure_one, told_of_death
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.session.watch import Seen
from ddtree_bench.status import Status

TOKENIZER = SimpleNamespace(vocabulary=259)


@dataclass
class FakeRunning:
    """A process that has ended with a code, or runs."""

    code: int | None = None
    log: str = "RuntimeError: fake"

    def exit_code(self):
        """The given code."""
        return self.code

    def wait_for_exit(self, seconds):
        """The given code, at once."""
        return self.code

    def log_tail(self):
        """The given log."""
        return self.log

    def failure(self):
        """Nothing that a parser would know."""


@dataclass
class FakeClient:
    """A client whose control requests are well, or fail."""

    fault: Status | None = None

    def _control(self):
        if self.fault is not None:
            raise RequestError(self.fault, "why")

    health_generate = flush_cache = _control


def live(code=None, fault=None, log="RuntimeError: fake") -> Live:
    return Live(FakeRunning(code, log), FakeClient(fault), TOKENIZER)


def measured(tmp_path, server, *requests):
    """A cell of which the requests end like these."""
    asked = []

    def measure(client, tokenizer, task):
        asked.append(task)
        return requests

    result = measure_one(server, bench(tmp_path), cell_id(), "k", measure)
    return result, asked


def test_a_good_cell(tmp_path):
    """Its requests, its class, its place; the task holds the drawn prompts and the seed."""
    request = request_record()
    result, (task,) = measured(tmp_path, live(), request)
    assert result.cell.status is Status.OK
    assert result.requests == (request,)
    assert (result.cell.workload_class, result.cell.round, result.cell.key) == ("short", 1, "k")
    assert result.cell.ended_unix_s >= result.cell.started_unix_s
    assert sorted(prompt.id for prompt in task.prompts) == ["p0", "p1"]
    assert not task.should_stop()


def test_a_cell_is_watched_while_it_is_asked_and_not_otherwise(tmp_path, monkeypatch):
    """Flushing, looking whether the server lives and judging lie outside of the window."""
    happened = []

    def noted(name, result=None):
        return lambda *_: (happened.append(name), result)[1]

    eyes = SimpleNamespace(begin=noted("begin"), end=noted("end", Seen()))
    server = Live(FakeRunning(), FakeClient(), TOKENIZER, watch=eyes)
    server.client.flush_cache = noted("flush")
    server.server.exit_code = noted("looked")
    monkeypatch.setattr(measuring, "judged", noted("judged", (request_record(),)))
    asking = noted("asked", (request_record(),))
    measure_one(server, bench(tmp_path), cell_id(), "k", asking)
    assert happened == ["flush", "begin", "asked", "end", "judged", "looked"]


def test_counters_are_held_against_the_servers_block(tmp_path):
    """One draft was accepted: a block of 2 holds it beside its bonus token, one of 1 does not."""
    for block_size, status in ((2, Status.OK), (1, Status.BAD_COUNTS)):
        chain = {"algorithm": "DFLASH", "drafter": str(tmp_path), "block_size": block_size}
        spec = bench(tmp_path / str(block_size), **chain)
        result = measure_one(live(), spec, cell_id(), "k", lambda *_: (request_record(),))
        assert result.cell.status is status


def test_a_refused_flush_fails_the_cell_before_it_is_measured(tmp_path):
    """A warm cache would be measured as a cold one."""
    result, asked = measured(tmp_path, live(fault=Status.HTTP_ERROR), request_record())
    assert result.cell.status is Status.HTTP_ERROR
    assert result.cell.detail == "flush_cache: why"
    assert asked == []


def test_a_server_that_ended_spoils_a_cell_that_looks_well(tmp_path):
    """Who knows since when it was ailing."""
    result, _ = measured(tmp_path, live(code=-9), request_record())
    assert result.cell.status is Status.DIED_IN_REQUEST
    assert result.cell.detail == "killed by SIGKILL; last error: RuntimeError: fake"
    assert len(result.requests) == 1


def test_a_death_explains_an_error_of_another_kind(tmp_path):
    """HTTP 500 and then the end: the end is the reason."""
    bad = request_record(status=Status.HTTP_ERROR, detail="500")
    result, _ = measured(tmp_path, live(code=1, log="CUDA out of memory"), bad)
    assert result.cell.status is Status.OUT_OF_MEMORY
    assert result.requests[0].status is Status.HTTP_ERROR


@pytest.mark.parametrize("status", [Status.UNREACHABLE, Status.MALFORMED, Status.HUNG])
def test_requests_cut_off_by_a_death_say_so(status):
    """A lost connection becomes the death of the server, other records stay."""
    requests = (request_record(), request_record(status=status, detail="reset"))
    told = told_of_death(FakeRunning(code=7), requests)
    assert told[0] == requests[0]
    assert told[1].status is Status.DIED_IN_REQUEST
    assert told[1].detail == "exit code 7; last error: RuntimeError: fake"
    assert told_of_death(FakeRunning(), requests) == requests


@pytest.mark.parametrize(
    ("status", "server", "lost"),
    [
        (Status.OK, live(), False),
        (Status.OK, live(code=0), True),
        (Status.HTTP_ERROR, live(fault=Status.UNREACHABLE), False),
        (Status.UNREACHABLE, live(), False),
        (Status.UNREACHABLE, live(fault=Status.HUNG), True),
        (Status.HUNG, live(), True),
        (Status.OUT_OF_MEMORY, live(), True),
        (Status.DIED_IN_REQUEST, live(), True),
    ],
)
def test_when_a_server_is_given_up(status, server, lost):
    """A death or a hang ends a session; one closed connection only if health fails, too."""
    requests = (request_record(), request_record(status=status))
    assert is_lost(server, MeasuredCell(cell_record(), requests)) == lost


def test_a_hang_before_the_first_request_loses_the_server():
    """Flushing the cache may hang, too: the cell says so, and no request does."""
    assert is_lost(live(), MeasuredCell(cell_record(status=Status.HUNG), ()))


def test_answers_of_a_fixed_length_are_counted_apart(tmp_path):
    """Whatever class their prompts are of, the cell is of class `fixed length`."""
    spec = bench(tmp_path, "workloads: {short: {ignore_eos: true}}")
    server = live()
    result = measure_one(server, spec, cell_id(), "k", lambda *_: (request_record(),))
    assert result.cell.workload_class == "fixed length"
    other = measure_one(
        server, spec, cell_id(workload="longform"), "k", lambda *_: (request_record(),)
    )
    assert other.cell.workload_class == "longform"


def test_draws_of_a_prompt_may_be_cached(tmp_path):
    """Nothing of them is timed; the same cell without draws would not have been cold."""
    cached = request_record(cached_tokens=100)
    drawn = bench(tmp_path / "a", "workloads: {short: {draws: 20, temperature: 1}}")
    result = measure_one(live(), drawn, cell_id(), "k", lambda *_: (cached,))
    assert (result.cell.status, result.cell.workload_class) == (Status.OK, "drawn")
    result = measure_one(live(), bench(tmp_path / "b"), cell_id(), "k", lambda *_: (cached,))
    assert result.cell.status is Status.NOT_COLD


def test_ids_lie_in_the_vocabulary(tmp_path):
    """The model has 259 tokens: an answer with number 259 is none of its."""
    good, bad = (request_record(output_ids=(10, 11, 12, last)) for last in (258, 259))
    assert measured(tmp_path / "a", live(), good)[0].cell.status is Status.OK
    result, _ = measured(tmp_path / "b", live(), bad)
    assert result.cell.status is Status.BAD_COUNTS
    assert "token id 259, but the vocabulary has 259" in result.cell.detail
