import numpy as np
import pytest

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.summary import class_mean, geometric_mean


def test_geometric_mean_by_hand() -> None:
    """The cube root of the product of three."""
    # 1 · 2 · 4 = 8
    assert geometric_mean(np.array([1.0, 2.0, 4.0])) == pytest.approx(2.0)


def test_inverse_of_the_geometric_mean() -> None:
    """Seconds per token and tokens per second pool to the same figure, unlike arithmetic means."""
    values = np.array([0.1, 0.4])
    assert geometric_mean(1 / values) == pytest.approx(1 / geometric_mean(values))


def test_a_class_weighs_the_same_whatever_its_size() -> None:
    """Many prompts in one class do not drown another."""
    # (1 + mean of 3, 3, 3, 3) ÷ 2 = 2; the mean of all five would be 2.6
    assert class_mean([np.array([1.0]), np.array([3.0] * 4)]) == 2.0


@pytest.mark.parametrize("per_prompt", [[], [np.array([1.0]), np.array([])]])
def test_no_prompt_has_no_mean(per_prompt: list[np.ndarray]) -> None:
    """An empty class is not silently left out."""
    with pytest.raises(NotEnoughData):
        class_mean(per_prompt)


def test_geometric_mean_needs_values_above_zero() -> None:
    """A zero would silently pull the whole mean to zero."""
    with pytest.raises(ValueError, match="above 0"):
        geometric_mean(np.array([1.0, 0.0]))
    with pytest.raises(NotEnoughData):
        geometric_mean(np.array([]))
