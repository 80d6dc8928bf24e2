import pytest

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.regret import Judgement, regret

TOP = {7: -0.70, 3: -0.75, 5: -3.0}


@pytest.mark.parametrize(
    ("emitted", "nats", "exact", "judgement"),
    [
        (7, 0.0, True, Judgement.NEAR_TIE),
        (3, 0.05, True, Judgement.NEAR_TIE),
        (5, 2.3, True, Judgement.FAULT),
        (9, 2.3, False, Judgement.FAULT),  # not recorded: at least as far down as the last one
    ],
)
def test_regret_by_hand(emitted: int, nats: float, exact: bool, judgement: Judgement) -> None:
    """Nats: log p of the first choice less log p of the emitted token; 0.1 nats are a tie."""
    found = regret(TOP, emitted)
    assert found.nats == pytest.approx(nats)
    assert (found.exact, found.judged(0.1)) == (exact, judgement)


def test_a_lower_bound_within_the_tie_is_not_judged() -> None:
    """Two recorded tokens that tie tell nothing of a third one."""
    assert regret({7: -0.70, 3: -0.75}, 9).judged(0.1) is Judgement.NOT_JUDGED


def test_regret_needs_log_probabilities() -> None:
    """Without recorded tokens there is nothing to regret."""
    with pytest.raises(NotEnoughData):
        regret({}, 1)
