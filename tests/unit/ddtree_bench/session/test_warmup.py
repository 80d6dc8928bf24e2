import threading
from types import SimpleNamespace

import pytest
from fakes import bench

from ddtree_bench.config import Warmup
from ddtree_bench.errors import RequestError
from ddtree_bench.session.warmup import (
    WARMUP_TEXT,
    WarmedUp,
    concurrencies,
    longest_text,
    seconds_per_token,
    warm_up,
)
from ddtree_bench.status import Status


def asked(*seconds):
    return iter(seconds).__next__


def test_two_equal_answers_end_the_warm_up():
    """9 → 2 differ; 2 → 1.9 differ by 0.1 ÷ 2 = 5 %, less than 10 %: three requests."""
    assert warm_up(asked(9, 2, 1.9, 1), Warmup()) == WarmedUp(1, True, False, (9, 2, 1.9))


def test_the_least_number_is_made_however_steady():
    """Equal answers do not end it before `min_requests`."""
    assert warm_up(asked(1, 1, 1, 1, 1), Warmup(min_requests=4)).requests == 4


def test_one_request_is_never_steady():
    """With `min_requests: 1` there is still a second one to compare with."""
    assert warm_up(asked(1, 1), Warmup(min_requests=1)) == WarmedUp(1, True, False, (1, 1))


def test_an_unsteady_server_is_told():
    """The cap ends it, and it says so."""
    assert warm_up(asked(1, 2, 1), Warmup(max_requests=3)) == WarmedUp(1, False, False, (1, 2, 1))


def test_a_difference_of_just_the_tolerance_is_not_steady():
    """|10 − 9| = 1 is not less than 0.1 × 10."""
    assert not warm_up(asked(10, 9), Warmup(max_requests=2)).steady


def test_a_failed_answer_passes_through():
    """The caller decides what a failure means."""

    def fails():
        raise RequestError(Status.HUNG, "nothing for 5 s")

    with pytest.raises(RequestError):
        warm_up(fails, Warmup())


def test_compilation_goes_on_with_the_warm_up():
    """A line during the second time: equal speeds count only from the third on.

    Read before the first and after each: 0, 0 1 1.
    """
    lines = iter([0, 0, 1, 1]).__next__
    assert warm_up(asked(1, 1, 1), Warmup(), 1, lines).seconds_per_token == (1, 1, 1)


def test_a_cap_reached_while_compiling_says_so():
    """Each time has a line of its own: 2 times with 4 in flight are 8 requests."""
    lines = iter([0, 1, 2]).__next__
    warm = warm_up(asked(1, 1), Warmup(max_requests=2), 4, lines)
    assert not warm.steady
    assert warm.said == "after 8 requests, 4 in flight, kernels were still compiled"


class Meeting:
    """A client whose answers end only when so many requests are in flight."""

    def __init__(self, together: int) -> None:
        self.barrier = threading.Barrier(together)

    def generate(self, prompt, sampling):
        """Wait for the others."""
        self.barrier.wait(timeout=10)
        answer = SimpleNamespace(completion_tokens=sampling.max_new_tokens)
        return SimpleNamespace(end_s=8.0, require=lambda: answer)


def test_requests_are_in_flight_together():
    """Three meet at a barrier of three; 8 s ÷ 4 tokens each."""
    assert seconds_per_token(Meeting(3), (1,), 4, concurrency=3) == 2.0


def test_the_smallest_and_the_largest_concurrency_are_warmed_up(tmp_path):
    """1, 4 and 2, 16: those in between lie between them."""
    spec = bench(tmp_path)
    for name, levels in (("short", (1, 4)), ("longform", (16, 2))):
        asked = spec.workloads[name].model_copy(update={"concurrency": levels})
        spec = spec.model_copy(update={"workloads": {**spec.workloads, name: asked}})
    assert concurrencies(spec) == (1, 16)


def test_one_concurrency_is_warmed_up_once(tmp_path):
    """The default workload has one request in flight."""
    assert concurrencies(bench(tmp_path)) == (1,)


def test_a_long_prompt_is_warmed_up_at_its_length(tmp_path):
    """700 characters against the text's own 70: ten times the text; short prompts need none."""
    spec = bench(tmp_path)
    assert longest_text(spec) is None
    line = '{"id": "long", "turns": ["' + "x" * 10 * len(WARMUP_TEXT) + '"]}\n'
    (tmp_path / "prompts.jsonl").write_text(line, encoding="utf-8")
    text = longest_text(spec)
    assert text is not None
    assert text.count(WARMUP_TEXT) == 10
