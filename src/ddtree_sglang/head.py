"""The target's head over the draft block, down to K candidates a depth."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree_sglang.candidates import merge_parts, reduce_part, top_candidates, words_of
from ddtree_sglang.stock import RankGroup


@dataclass(frozen=True, slots=True, eq=False)
class HeadPart:
    """The rows of the target's head that one rank holds.

    Attributes:
        weight: `[V', H]`, a row a token.
        first_token: id of the first row's token; the parts of all ranks follow each other.
        group: the ranks, None where one holds all rows.
    """

    weight: Tensor
    first_token: int
    group: RankGroup | None


class CandidateHead:
    """Candidates of each request in buffers of fixed address, so that a CUDA graph can end in it.

    With tensor parallelism each rank reduces its part of the vocabulary, all parts are gathered,
    and every rank merges the same words to the same candidates. A tree hangs on nothing else but
    the bonus token, so all ranks grow the same trees, whatever their logits' last bits are.

    Attributes:
        block: b, positions of a block; the bonus token's and L to draft.
        log_probs: `[rows, L, K]` float32, nats, descending.
        tokens: `[rows, L, K]` int64.
    """

    def __init__(self, part: HeadPart, block: int, topk: int, rows: int) -> None:
        self._part = part
        self.block = block
        device, shape = part.weight.device, (rows, block - 1, topk)
        self.log_probs = torch.empty(shape, dtype=torch.float32, device=device)
        self.tokens = torch.empty(shape, dtype=torch.int64, device=device)
        ranks = 1 if part.group is None else part.group.world_size
        words = (rows * (block - 1), words_of(topk)) if ranks > 1 else (0, 0)
        self._own = torch.empty(words, dtype=torch.float32, device=device)
        self._gathered = torch.empty(ranks * self._own.numel(), device=device)

    def __call__(self, hidden: Tensor | None) -> None:
        """Fill the first R rows from the drafter's `[R × b, H]` hidden states."""
        if hidden is None:
            raise RuntimeError("the drafter gave no hidden states")
        requests, weight = hidden.shape[0] // self.block, self._part.weight
        # Position 0 of a block is the bonus token. Two dimensions: a 3-D product is a slow bmm.
        drafted = hidden.view(requests, self.block, -1)[:, 1:].flatten(0, 1)  # [R × L, H]
        logits = torch.matmul(drafted.to(weight.dtype), weight.T)  # [R × L, V']
        log_probs = self.log_probs[:requests].flatten(0, 1)  # views: [R × L, K]
        tokens = self.tokens[:requests].flatten(0, 1)
        if self._part.group is None:
            _rank(logits, log_probs, tokens)
        else:
            _merge(self._gather(logits, self._part.group), log_probs, tokens)

    def _gather(self, logits: Tensor, group: RankGroup) -> Tensor:
        """The parts of all ranks, `[ranks, R × L, 2 K + 2]` words."""
        own = self._own[: len(logits)]
        if logits.is_cuda:
            from ddtree_sglang.candidates_kernel import reduce_part_on_gpu  # needs Triton

            reduce_part_on_gpu(logits, self._part.first_token, own)
        else:
            topk = self.tokens.shape[-1]
            own.copy_(reduce_part(logits, topk, self._part.first_token))
        gathered = self._gathered[: group.world_size * own.numel()]
        group.all_gather_into_tensor(gathered, own.flatten())
        return gathered.view(group.world_size, *own.shape)


def _rank(logits: Tensor, log_probs: Tensor, tokens: Tensor) -> None:
    """Write the candidates of whole rows of logits."""
    if logits.is_cuda:
        from ddtree_sglang.candidates_kernel import top_candidates_on_gpu  # needs Triton

        top_candidates_on_gpu(logits, log_probs, tokens)
    else:
        _copy(top_candidates(logits, log_probs.shape[1]), log_probs, tokens)


def _merge(parts: Tensor, log_probs: Tensor, tokens: Tensor) -> None:
    """Write the candidates of gathered parts."""
    if parts.is_cuda:
        from ddtree_sglang.candidates_kernel import merge_parts_on_gpu  # needs Triton

        merge_parts_on_gpu(parts, log_probs, tokens)
    else:
        _copy(merge_parts(parts), log_probs, tokens)


def _copy(found: tuple[Tensor, Tensor], log_probs: Tensor, tokens: Tensor) -> None:
    log_probs.copy_(found[0])
    tokens.copy_(found[1])


def head_part(model: object, group: RankGroup, topk: int) -> HeadPart:
    """The rows of the target's head that stand for tokens, without those that only pad.

    Raises:
        ValueError: the head is missing or quantised, has rows that are not in its main part, or
            a rank has fewer tokens than candidates.
    """
    head = getattr(model, "lm_head", None)
    weight = getattr(head, "weight", None)
    if not isinstance(weight, Tensor):
        raise ValueError("DDTREE drafts through the target's lm_head, but the target has none")
    if not weight.is_floating_point():
        raise ValueError(f"DDTREE needs an lm_head in floating point, not {weight.dtype}")
    ranks = None if group.world_size == 1 else group
    shard = getattr(head, "shard_indices", None)
    if shard is None:
        if ranks is not None:
            raise ValueError(
                "DDTREE cannot tell which tokens this rank's lm_head holds: take --tp-size 1"
            )
        return HeadPart(weight, 0, None)
    if shard.num_added_elements != 0:
        raise ValueError("DDTREE cannot rank candidates over an lm_head with added tokens")
    count = int(shard.num_org_elements)
    if count < topk:
        raise ValueError(
            f"a rank holds {count} tokens of the vocabulary, fewer than {topk} candidates: "
            "take a smaller --tp-size or --speculative-ddtree-topk-cap"
        )
    return HeadPart(weight[:count], int(shard.org_vocab_start_index), ranks)
