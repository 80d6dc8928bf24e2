"""Who else was busy: sums over looks at all processes, and one look at the real ones."""

import os

import pytest

from ddtree_bench.server.neighbours import Look, Neighbour, Spent, busiest, look

OWN, OTHER, QUIET = (100, 1.0), (200, 1.0), (300, 1.0)


def at(seconds: float, **spent: float) -> Look:
    """A look at some moment; CPU seconds by name."""
    keys = {"own": OWN, "other": OTHER, "quiet": QUIET}
    return Look(seconds, {keys[name]: Spent(name, value) for name, value in spent.items()})


def test_the_busiest_of_the_others():
    """6 s of CPU in 10 s are 0.6 of a CPU; our own do not count, however busy."""
    before, after = at(0, own=0, other=1, quiet=1), at(10, own=9, other=7, quiet=1.5)
    assert busiest(before, after, {OWN[0]}) == Neighbour("other", pytest.approx(0.6))


def test_a_process_that_came_later_counts_whole():
    """It was not there before, so all its time lies in between."""
    found = busiest(at(0), at(10, quiet=2), {OWN[0]})
    assert found == Neighbour("quiet", pytest.approx(0.2))


def test_an_id_that_was_used_again_is_another_process():
    """The first one's time is not taken off the second one's."""
    after = Look(10, {(OTHER[0], 5.0): Spent("new", 3.0)})
    assert busiest(at(0, other=2), after, ()) == Neighbour("new", pytest.approx(0.3))


def test_nobody_else_or_no_time():
    """Then there is nothing to tell."""
    assert busiest(at(0, own=0), at(10, own=9), {OWN[0]}) is None
    assert busiest(at(5, other=0), at(5, other=9), ()) is None


@pytest.mark.parametrize(("cpus", "disturbs"), [(0.09, False), (0.10, False), (0.11, True)])
def test_a_tenth_of_a_cpu_is_the_limit(cpus, disturbs):
    """More than 10 % disturbs."""
    assert Neighbour("other", cpus).disturbs is disturbs


def test_a_real_look_sees_this_process():
    """With CPU time that does not fall."""
    first, second = look(), look()
    mine = next(key for key in first.spent if key[0] == os.getpid())
    assert second.spent[mine].seconds >= first.spent[mine].seconds > 0
