"""What a first difference between two greedy answers means to the target itself.

Up to the difference both answers are the same, so the target has one distribution there. Its regret
is how much less likely the emitted token is than the target's first choice, in nats: next to
nothing where two tokens tie and rounding decides, large where the server emitted what the target
would not have said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ddtree_bench.errors import NotEnoughData


class Judgement(StrEnum):
    """What a first difference is."""

    NEAR_TIE = "near_tie"
    FAULT = "fault"
    NOT_JUDGED = "not_judged"


@dataclass(frozen=True, slots=True)
class Regret:
    """Nats that the emitted token lies below the target's first choice."""

    nats: float
    exact: bool
    """False: the token is not among those recorded, `nats` is the least that it can be."""

    def judged(self, near_tie_nats: float) -> Judgement:
        """Whether it is a tie within `near_tie_nats`, a fault, or not to be told."""
        if self.nats > near_tie_nats:
            return Judgement.FAULT
        return Judgement.NEAR_TIE if self.exact else Judgement.NOT_JUDGED


def regret(top: Mapping[int, float], emitted: int) -> Regret:
    """Nats between two tokens: log p(first choice) − log p(emitted), nats, at least 0.

    Args:
        top: the target's most likely tokens on the common prefix with their log probabilities.
        emitted: the token that the server emitted there.

    Raises:
        NotEnoughData: `top` is empty.
    """
    if not top:
        raise NotEnoughData(0, 1, "recorded log probabilities")
    best = max(top.values())
    if emitted in top:
        return Regret(best - top[emitted], exact=True)
    return Regret(best - min(top.values()), exact=False)
