from dataclasses import dataclass, field

import pytest

from ddtree_bench.client.answers import Answer
from ddtree_bench.client.client import Exchange
from ddtree_bench.errors import RequestError, ServerError
from ddtree_bench.server.deadline import Deadline
from ddtree_bench.server.readiness import wait_until_ready
from ddtree_bench.status import Status


@dataclass
class FakeRunning:
    """A process that ends at the n-th look, or never."""

    dies_at_look: int | None = None
    code: int = 1
    log: str = "RuntimeError: fake"
    looks: int = 0

    def exit_code(self):
        """Dead from the n-th look on."""
        self.looks += 1
        dead = self.dies_at_look is not None and self.looks >= self.dies_at_look
        return self.code if dead else None

    def wait_for_exit(self, seconds):
        """No waiting here."""
        return self.exit_code()

    def log_tail(self):
        """The given log."""
        return self.log

    def failure(self):
        """Nothing that a parser would know."""


@dataclass
class FakeClient:
    """A client whose health checks fail some times before they succeed."""

    unhealthy: int = 0
    tokens: int | None = 16
    status: Status = Status.OK
    timeout_s: float = 5.0
    asked: list = field(default_factory=list)

    def health_generate(self, timeout_s):
        """Refuse the first times."""
        self.asked.append("health")
        if len(self.asked) <= self.unhealthy:
            raise RequestError(Status.UNREACHABLE, "connection refused")

    def generate(self, prompt, sampling):
        """Answer as told."""
        self.asked.append((tuple(prompt), sampling.max_new_tokens, sampling.ignore_eos))
        return Exchange(0.0, 0.0, 1.0, Answer(completion_tokens=self.tokens), self.status, "why")


def failure(server, client, seconds=60.0) -> ServerError:
    with pytest.raises(ServerError) as caught:
        wait_until_ready(server, client, [1, 2], Deadline.after(seconds))
    return caught.value


def test_ready_after_a_real_answer():
    """Health is asked until it is good, then one prompt is answered."""
    client = FakeClient(unhealthy=1)
    wait_until_ready(FakeRunning(), client, [1, 2], Deadline.after(60))
    assert client.asked == ["health", "health", ((1, 2), 16, True)]


def test_a_dead_process_is_noticed_before_its_health_is_asked():
    """Another server on the port must not answer for it."""
    client = FakeClient()
    error = failure(FakeRunning(dies_at_look=1), client)
    assert client.asked == []
    assert error.status is Status.DIED_AT_START
    assert error.what == "exit code 1; last error: RuntimeError: fake"
    assert error.log_tail == "RuntimeError: fake"


def test_a_death_in_the_first_answer_is_a_death_at_start():
    """The lost connection is explained by the process's end."""
    error = failure(FakeRunning(dies_at_look=2), FakeClient(status=Status.UNREACHABLE))
    assert error.status is Status.DIED_AT_START


def test_memory_is_told_apart():
    """The log decides."""
    error = failure(FakeRunning(dies_at_look=1, log="CUDA out of memory"), FakeClient())
    assert error.status is Status.OUT_OF_MEMORY


def test_a_passed_deadline_says_what_was_seen_last():
    """Not ready: the last health answer is in the message."""
    error = failure(FakeRunning(), FakeClient(unhealthy=999), seconds=0.01)
    assert error.status is Status.NOT_READY
    assert error.what == "deadline passed; connection refused"


@pytest.mark.parametrize("tokens", [None, 0, 8])
def test_a_short_first_answer_is_not_ready(tokens):
    """More than eight tokens are wanted: faults of speculation show after several steps."""
    assert failure(FakeRunning(), FakeClient(tokens=tokens)).status is Status.NOT_READY


def test_a_failed_first_answer_is_not_ready():
    """A server that lives but answers with an error is not ready."""
    error = failure(FakeRunning(), FakeClient(status=Status.HTTP_ERROR))
    assert error.status is Status.NOT_READY
    assert error.what == "its first answer failed: why"
