"""A step's result with what its trees were like, copied to the host with the tokens."""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any
from __future__ import annotations

from dataclasses import dataclass

from sglang.srt.managers.utils import GenerationBatchResult, _async_d2h
from torch import Tensor

from ddtree_sglang.buffers import Step


@dataclass
class TreeBatchResult(GenerationBatchResult):
    """SGLang's result and two more fields.

    Attributes:
        tree_counts: `[R, L + 1 + K]` int32: nodes a depth, deepest depth, accepted nodes a rank.
        tree_trace: tokens, parents and scores, `[R, N]` each, and the path `[R, D]`; only when
            steps are traced.
    """

    tree_counts: Tensor | None = None
    tree_trace: tuple[Tensor, ...] | None = None

    def copy_to_cpu(self, return_logprob: bool, return_hidden_states: bool = True) -> None:
        """Start the copies; SGLang records when they are done, and waits before it reads them."""
        if self.tree_counts is not None:
            self.tree_counts = _async_d2h(self.tree_counts)
        if self.tree_trace is not None:
            self.tree_trace = tuple(_async_d2h(part) for part in self.tree_trace)
        super().copy_to_cpu(return_logprob, return_hidden_states)


def trace_of(step: Step) -> tuple[Tensor, ...]:
    """What `TreeBatchResult.tree_trace` holds."""
    return step.trees.tokens, step.trees.parents, step.trees.scores, step.path.nodes[:, 1:]
