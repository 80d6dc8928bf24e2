"""Why one server is faster than another: by what a step yields, by what it costs, or elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

SMALL = 0.005
"""Logarithm of a factor that is not worth a sentence: half a percent."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A speed-up as a product of factors."""

    acceptance: float
    """Tokens of a step, candidate ÷ reference."""
    cost: float
    """Time of a step, reference ÷ candidate; under 1 the candidate's steps cost more."""
    first_token: float | None
    """What the times to the first token make of it; None: not known, part of the rest."""
    rest: float
    """What is left: queueing, transport, other weights of prompts, rounding."""

    @property
    def said(self) -> str:
        """One clause that names the factor that decided."""
        factors = {"acceptance": self.acceptance, "cost": self.cost}
        if self.first_token is None:
            factors["time outside of steps"] = self.rest
        else:
            factors |= {"time to first token": self.first_token, "the rest": self.rest}
        total = sum(math.log(factor) for factor in factors.values())
        if abs(total) < SMALL:
            return "neither won nor lost"
        verb = "won" if total > 0 else "lost"
        # of the factors that push the way it went, the strongest one
        decisive = max(factors, key=lambda name: math.log(factors[name]) * math.copysign(1, total))
        return f"{verb} by {decisive}"


def cause_of(
    speedup: float,
    acceptance_ratio: float,
    step_time_ratio: float,
    first_token: float | None = None,
) -> Cause:
    """The factors of a speed-up: acceptance ratio × 1 ÷ step-time ratio × first token × rest.

    Raises ValueError unless all are above 0.
    """
    known = 1.0 if first_token is None else first_token
    if not all(ratio > 0 for ratio in (speedup, acceptance_ratio, step_time_ratio, known)):
        raise ValueError("ratios lie above 0")
    cost = 1 / step_time_ratio
    return Cause(acceptance_ratio, cost, first_token, speedup / (acceptance_ratio * cost * known))
