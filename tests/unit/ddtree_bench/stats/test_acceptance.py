import numpy as np
import pytest

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.acceptance import acceptance_length, histogram_length, histogram_shares


def test_acceptance_length_is_pooled() -> None:
    """A long request weighs more than a short one."""
    # (30 + 2) ÷ (10 + 2) = 2.67; the mean of ratios would be 2.0
    assert acceptance_length(np.array([30, 2]), np.array([10, 2])) == pytest.approx(32 / 12)


def test_bonus_token_counts() -> None:
    """A step that accepts nothing still gives one token."""
    assert histogram_length(np.array([7])) == 1.0


def test_recorded_histogram() -> None:
    """The histogram and the sums of a recorded answer (SGLang 0.5.17, DFLASH) agree."""
    # [17, 3, 2]: 22 steps, 3 + 2·2 = 7 accepted; 7 + 22 = 29 of its 30 tokens, one is prefill's
    assert histogram_length(np.array([17, 3, 2])) == pytest.approx(29 / 22)
    assert acceptance_length(np.array([29]), np.array([22])) == pytest.approx(29 / 22)


def test_shares_sum_to_one() -> None:
    """Shares are of verify steps."""
    assert histogram_shares(np.array([1, 0, 3])) == pytest.approx([0.25, 0.0, 0.75])


@pytest.mark.parametrize("histogram", [np.array([], dtype=np.int64), np.array([0, 0])])
def test_no_step_has_no_acceptance(histogram: np.ndarray) -> None:
    """Zero steps is not acceptance zero."""
    with pytest.raises(NotEnoughData, match="verify steps"):
        histogram_length(histogram)
    with pytest.raises(NotEnoughData, match="verify steps"):
        histogram_shares(histogram)
