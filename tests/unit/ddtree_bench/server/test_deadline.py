import math

from ddtree_bench.server.deadline import Deadline


def test_time_left_is_never_negative():
    """A passed deadline has 0 s left."""
    assert Deadline.after(-5).left_s == 0.0
    assert Deadline.after(-5).passed


def test_a_deadline_to_come_has_time_left():
    """At most what was asked for."""
    deadline = Deadline.after(1000)
    assert 0 < deadline.left_s <= 1000
    assert not deadline.passed
    assert not Deadline.after(math.inf).passed
