"""Where a run keeps its files; the only place that knows the names below `results/`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunLayout:
    """Paths of one run: `results/{run}/…`."""

    root: Path

    @classmethod
    def of(cls, run: str, results: Path = Path("results")) -> RunLayout:
        """The layout of the run with this name."""
        return cls(results / run)

    @property
    def cells(self) -> Path:
        """The store: finished cells under their key."""
        return self.root / "cells"

    @property
    def replies(self) -> Path:
        """Replies that the baseline gave before the first round."""
        return self.root / "replies.jsonl"

    @property
    def logprobs(self) -> Path:
        """The store of the target's log probabilities."""
        return self.root / "logprobs"

    @property
    def tables(self) -> Path:
        """CSV files of the aggregation."""
        return self.root / "tables"

    @property
    def figures(self) -> Path:
        """Charts as PDF."""
        return self.root / "figures"

    def session(self, server: str, launch: int | str) -> Path:
        """Outputs of one server launch."""
        return self.root / "sessions" / server / f"launch-{launch}"
