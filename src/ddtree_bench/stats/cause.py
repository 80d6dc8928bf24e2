"""Why one server is faster than another: by what a step yields, or by what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

SMALL = 0.005
"""Logarithm of a factor that is not worth a sentence: half a percent."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A speed-up as a product of three factors."""

    acceptance: float
    """Tokens of a step, candidate ÷ reference."""
    cost: float
    """Time of a step, reference ÷ candidate; under 1 the candidate's steps cost more."""
    rest: float
    """What is left: prefill, queueing, transport, rounding."""

    @property
    def said(self) -> str:
        """One clause that names the factor that decided."""
        factors = {
            "acceptance": self.acceptance,
            "cost": self.cost,
            "time outside of steps": self.rest,
        }
        total = sum(math.log(factor) for factor in factors.values())
        if abs(total) < SMALL:
            return "neither won nor lost"
        verb = "won" if total > 0 else "lost"
        # of the factors that push the way it went, the strongest one
        decisive = max(factors, key=lambda name: math.log(factors[name]) * math.copysign(1, total))
        return f"{verb} by {decisive}"


def cause_of(speedup: float, acceptance_ratio: float, step_time_ratio: float) -> Cause:
    """The factors of a speed-up: acceptance ratio × 1 ÷ step-time ratio × rest.

    Raises ValueError unless all are above 0.
    """
    if not all(ratio > 0 for ratio in (speedup, acceptance_ratio, step_time_ratio)):
        raise ValueError("ratios lie above 0")
    cost = 1 / step_time_ratio
    return Cause(acceptance_ratio, cost, speedup / (acceptance_ratio * cost))
