import numpy as np
import pytest

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.profile import acceptance_by_budget, cost_between


def test_a_smaller_tree_accepts_its_own_nodes() -> None:
    """Ten steps; 6, 3, 0 and 1 accepted of nodes 1 to 4: 1, 1.6, 1.9, 1.9 and 2.0 tokens a step."""
    found = acceptance_by_budget(np.array([6, 3, 0, 1]), 10)
    assert found == pytest.approx([1.0, 1.6, 1.9, 1.9, 2.0])
    with pytest.raises(NotEnoughData):
        acceptance_by_budget(np.array([1]), 0)


def test_cost_between_measured_widths() -> None:
    """10 ms at 1, 24 and 28 ms at 9 (26 on average): 2 ms a token in between, nothing beyond."""
    found = cost_between([9, 1, 9], [0.024, 0.010, 0.028], np.array([1, 5, 9, 10]))
    assert found[:3] == pytest.approx([0.010, 0.018, 0.026])
    assert np.isnan(found[3])
    with pytest.raises(NotEnoughData):
        cost_between([4, 4], [1.0, 2.0], np.array([4]))
