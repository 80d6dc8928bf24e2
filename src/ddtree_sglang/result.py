"""A step's result, which goes to the host in one copy."""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any
from __future__ import annotations

from dataclasses import dataclass

from sglang.srt.managers.utils import GenerationBatchResult, _async_d2h
from torch import Tensor

from ddtree_sglang.buffers import Step
from ddtree_sglang.report import Report


@dataclass
class TreeBatchResult(GenerationBatchResult):
    """SGLang's result and more fields.

    Attributes:
        report: what `next_token_ids` and `accept_lens` are parts of; for the batch's R requests
            and, behind them, for those that only filled a captured graph's batch.
        tree_counts: `[R, L + 1 + K]`, see `Report.counts`.
        tree_trace: tokens, parents and scores, `[R, N]` each, and the path `[R, D]`; only when
            steps are traced.
    """

    report: Report | None = None
    tree_counts: Tensor | None = None
    tree_trace: tuple[Tensor, ...] | None = None

    def show(self, report: Report, requests: int) -> None:
        """Take the fields of the first R requests from a report."""
        self.report = report
        self.next_token_ids = report.tokens[:requests].flatten()
        self.accept_lens = report.lens[:requests]
        self.new_seq_lens = report.new_lens[:requests]
        self.tree_counts = report.counts[:requests]

    def copy_to_cpu(self, return_logprob: bool, return_hidden_states: bool = True) -> None:
        """Start the copies; SGLang records when they are done, and waits before it reads them."""
        if self.report is not None and self.accept_lens is not None:
            on_device = self.new_seq_lens  # read there by the next step
            host = self.report.like(_async_d2h(self.report.flat))
            self.show(host, len(self.accept_lens))
            self.new_seq_lens = on_device
        if self.tree_trace is not None:
            self.tree_trace = tuple(_async_d2h(part) for part in self.tree_trace)
        super().copy_to_cpu(return_logprob, return_hidden_states)


def trace_of(step: Step, requests: int) -> tuple[Tensor, ...]:
    """What `TreeBatchResult.tree_trace` holds, for the first R requests."""
    parts = (step.trees.tokens, step.trees.parents, step.trees.scores, step.path.nodes[:, 1:])
    return tuple(part[:requests].clone() for part in parts)
