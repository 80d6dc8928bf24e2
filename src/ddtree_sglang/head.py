"""The target's head over the draft block, down to K candidates a depth."""

from __future__ import annotations

import torch
from torch import Tensor

from ddtree_sglang.candidates import top_candidates


class CandidateHead:
    """Candidates of each request in buffers of fixed address, so that a CUDA graph can end in it.

    Attributes:
        log_probs: `[rows, L, K]` float32, nats, descending.
        tokens: `[rows, L, K]` int64.
    """

    def __init__(self, weight: Tensor, block: int, topk: int, rows: int) -> None:
        self._weight = weight  # [V, H]
        self._block = block
        shape = (rows, block - 1, topk)
        self.log_probs = torch.empty(shape, dtype=torch.float32, device=weight.device)
        self.tokens = torch.empty(shape, dtype=torch.int64, device=weight.device)

    def __call__(self, hidden: Tensor, input_ids: Tensor | None = None) -> None:
        """Fill the first R rows from the drafter's `[R × b, H]` hidden states.

        `input_ids` is there for SGLang's capture hook (speculative/draft_worker_common.py:203).
        """
        requests = hidden.shape[0] // self._block
        # Position 0 of a block is the bonus token. Two dimensions: a 3-D product is a slow bmm.
        drafted = hidden.view(requests, self._block, -1)[:, 1:].flatten(0, 1)  # [R × L, H]
        logits = torch.matmul(drafted.to(self._weight.dtype), self._weight.T)  # [R × L, V]
        log_probs = self.log_probs[:requests].flatten(0, 1)  # views: [R × L, K]
        tokens = self.tokens[:requests].flatten(0, 1)
        if logits.is_cuda:
            from ddtree_sglang.candidates_kernel import top_candidates_on_gpu  # needs Triton

            top_candidates_on_gpu(logits, log_probs, tokens)
        else:
            values, ids = top_candidates(logits, log_probs.shape[1])
            log_probs.copy_(values)
            tokens.copy_(ids)


def head_weight(model: object) -> Tensor:
    """The rows of the target's head that stand for tokens, `[V, H]`.

    Raises:
        ValueError: the head is missing or quantised, or has rows that are not in its main part.
    """
    head = getattr(model, "lm_head", None)
    weight = getattr(head, "weight", None)
    if not isinstance(weight, Tensor):
        raise ValueError("DDTREE drafts through the target's lm_head, but the target has none")
    if not weight.is_floating_point():
        raise ValueError(f"DDTREE needs an lm_head in floating point, not {weight.dtype}")
    shard = getattr(head, "shard_indices", None)
    if shard is None:
        return weight
    if shard.num_added_elements != 0:
        raise ValueError("DDTREE cannot rank candidates over an lm_head with added tokens")
    return weight[: int(shard.num_org_elements)]
