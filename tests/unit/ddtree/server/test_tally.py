from ddtree.engine import Step, StepTree
from ddtree.server.tally import Tally


def step(accepted, tree=None):
    return Step((1,), accepted, tree, None, None)


def test_sums_over_verify_steps():
    """Histogram, depths, ranks and spine add up over steps; the prefill's step counts nothing."""
    tally = Tally()
    tally.add(step(None))
    tally.add(step(0, StepTree((3, 1), (), 2)))
    tally.add(step(2, StepTree((2, 1, 1), (1, 0), 3)))
    assert tally.verify_steps == 2
    assert tally.accepted_drafts == 2
    assert tally.histogram == [1, 0, 1]  # one step with 0, one with 2
    assert tally.nodes_by_depth == [5, 2, 1]  # 3 + 2, 1 + 1, 1
    assert tally.accepted_by_depth == [1, 1]  # the second step went down to depth 2
    assert tally.accepted_by_rank == [1, 1]
    assert tally.spine_nodes == 5  # 2 + 3


def test_no_verify_step_is_zero():
    """Plain decoding leaves every count at a measured zero."""
    tally = Tally()
    tally.add(step(None))
    assert tally == Tally()
