"""What a step reports to the host, in one tensor, so that one copy brings it there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """A step of R requests; all parts are views of `flat`, and int64.

    Attributes:
        flat: the tensor that is copied.
        tokens: `[R, N]`, new tokens along the accepted path; 0 behind its end.
        bonus: `[R]`, the last new token.
        new_lens: `[R]`, committed tokens with the new ones.
        lens: `[R]`, new tokens: as many as the path has nodes, the root included.
        counts: `[R, L + 1 + K]`: nodes a depth, deepest depth, accepted nodes a rank.
    """

    flat: Tensor
    tokens: Tensor
    bonus: Tensor
    new_lens: Tensor
    lens: Tensor
    counts: Tensor

    @classmethod
    def empty(cls, requests: int, width: int, counts: int, device: torch.device) -> Report:
        """Space for R requests of trees of N nodes."""
        cells = requests * (width + 3 + counts)
        flat = torch.zeros(cells, dtype=torch.int64, device=device)
        return cls.of(flat, requests, width, counts)

    @classmethod
    def of(cls, flat: Tensor, requests: int, width: int, counts: int) -> Report:
        """The parts of a tensor that holds R requests."""
        sizes = [requests * width, requests, requests, requests, requests * counts]
        tokens, bonus, new_lens, lens, numbers = torch.split(flat, sizes)
        return cls(
            flat,
            tokens.view(requests, width),
            bonus,
            new_lens,
            lens,
            numbers.view(requests, counts),
        )

    def like(self, flat: Tensor) -> Report:
        """The parts of a copy."""
        requests, width = self.tokens.shape
        return Report.of(flat, requests, width, self.counts.shape[1])
