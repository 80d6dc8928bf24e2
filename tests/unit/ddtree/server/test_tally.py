from ddtree.engine import Step, StepTree
from ddtree.server.tally import Tally


def step(accepted, tree=None, drafting_s=0.0):
    return Step((1,), accepted, tree, None, None, drafting_s=drafting_s)


def test_sums_over_verify_steps():
    """Histogram, depths, ranks and spine add up over steps; the prefill's step counts nothing."""
    tally = Tally()
    tally.add(step(None))
    tally.add(step(0, StepTree((3, 1), (), (), 2), drafting_s=0.25))
    tally.add(step(2, StepTree((2, 1, 1), (1, 0), (2, 4), 3), drafting_s=0.5))
    assert tally.verify_steps == 2
    assert tally.accepted_drafts == 2
    assert tally.histogram == [1, 0, 1]  # one step with 0, one with 2
    assert tally.nodes_by_depth == [5, 2, 1]  # 3 + 2, 1 + 1, 1
    assert tally.accepted_by_depth == [1, 1]  # the second step went down to depth 2
    assert tally.accepted_by_rank == [1, 1]
    assert tally.accepted_by_node == [0, 1, 0, 1]  # nodes 2 and 4 of the second tree
    assert tally.spine_nodes == 5  # 2 + 3
    assert tally.drafting_s == 0.75


def test_no_verify_step_is_zero():
    """Plain decoding leaves every count at a measured zero."""
    tally = Tally()
    tally.add(step(None))
    assert tally == Tally()
