"""A step's result with what its trees were like, copied to the host with the tokens."""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any
from __future__ import annotations

from dataclasses import dataclass, fields

from sglang.srt.managers.utils import GenerationBatchResult, _async_d2h
from torch import Tensor

from ddtree_sglang.options import TreeOptions
from ddtree_sglang.planner import TreePlan
from ddtree_sglang.tree import count_ranks, follow


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


def with_tree_counts(
    result: GenerationBatchResult, plan: TreePlan, depth: int, options: TreeOptions
) -> TreeBatchResult:
    """Return `result` with its trees' counts; `depth` is the longest path D."""
    trees = plan.trees
    next_tokens = result.next_token_ids.view(trees.tokens.shape)
    by_rank = plan.counts[:, -options.topk :]
    if by_rank.is_cuda:
        from ddtree_sglang.tree_kernel import follow_on_gpu  # needs Triton

        path = follow_on_gpu(trees, next_tokens, result.accept_lens, depth, by_rank)
    else:
        path = follow(trees, next_tokens, result.accept_lens, depth)
        by_rank.copy_(count_ranks(trees, path, options.topk))
    trace = (trees.tokens, trees.parents, trees.scores, path) if options.trace else None
    known = {field.name: getattr(result, field.name) for field in fields(result)}
    return TreeBatchResult(**known, tree_counts=plan.counts, tree_trace=trace)
