"""A batch's trees in the form that SGLang's target verifies: tokens, positions, links and mask."""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found"
from __future__ import annotations

from dataclasses import dataclass

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.eagle_info import EagleVerifyInput
from sglang.srt.speculative.eagle_utils import TreeMaskMode, default_tree_mask_mode
from torch import Tensor

from ddtree_sglang.options import TreeOptions
from ddtree_sglang.stock import Batch, Runner
from ddtree_sglang.tree import (
    TreeBatch,
    ancestor_mask,
    count_nodes,
    grow_trees,
    write_full_mask,
)


@dataclass(frozen=True, slots=True, eq=False)
class TreePlan:
    """One step's trees.

    Attributes:
        trees: R trees of N nodes.
        positions: `[R, N]` int64, in the text.
        numbers: `[R, N]` int64, each node's place in the batch.
        mask: flat, in the layout of the target's attention backend.
        counts: `[R, L + 1 + K]` int32, `tree.count_nodes`, then space for `tree.count_ranks`.
    """

    trees: TreeBatch
    positions: Tensor
    numbers: Tensor
    mask: Tensor
    counts: Tensor

    def verify_input(self, depth: int, options: TreeOptions) -> EagleVerifyInput:
        """What SGLang verifies; `depth` is the longest path below the root.

        EAGLE's type rather than DFLASH's: sampling, grammar and recurrent layers take the links
        from it (hybrid_linear_attn_backend.py:278 tests for the type).
        """
        width = self.positions.shape[1]
        return EagleVerifyInput(
            draft_token=self.trees.tokens.flatten(),
            custom_mask=self.mask,
            positions=self.positions.flatten(),
            retrieve_index=self.numbers,
            retrieve_next_token=self.trees.children,
            retrieve_next_sibling=self.trees.siblings,
            retrieve_cum_len=None,
            spec_steps=depth,
            topk=options.topk,
            draft_token_num=width,
            capture_hidden_mode=CaptureHiddenMode.FULL,
            seq_lens_sum=None,
            seq_lens_cpu=None,
        )


def capture_verify_input(width: int, topk: int, mask: Tensor) -> EagleVerifyInput:
    """A verify input without tokens, for capturing graphs that read a mask.

    A graph captured without one would verify a tree as a chain.
    """
    return EagleVerifyInput(
        draft_token=None,
        custom_mask=mask,
        positions=None,
        retrieve_index=None,
        retrieve_next_token=None,
        retrieve_next_sibling=None,
        retrieve_cum_len=None,
        spec_steps=1,
        topk=topk,
        draft_token_num=width,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        seq_lens_sum=None,
        seq_lens_cpu=None,
    )


class TreePlanner:
    """Plans each step of a target; `width` is N."""

    def __init__(self, target_runner: Runner, width: int) -> None:
        self._runner = target_runner
        self._width = width
        self._numbers = torch.empty(0, width, dtype=torch.int64)

    def plan(self, log_probs: Tensor, tokens: Tensor, batch: Batch) -> TreePlan:
        """Return the trees grown from candidates, both `[R, L, K]`; waits for nothing on a GPU."""
        bonus, prefix_lens = batch.spec_info.bonus_tokens, batch.seq_lens
        mask, is_full = self._mask_space(batch)
        requests, levels, topk = log_probs.shape
        counts = torch.empty(
            requests, levels + 1 + topk, dtype=torch.int32, device=log_probs.device
        )
        if log_probs.is_cuda:
            from ddtree_sglang.tree_kernel import grow_trees_on_gpu  # needs Triton

            trees, positions = grow_trees_on_gpu(
                log_probs, tokens, bonus, prefix_lens, self._width, mask, counts, full_mask=is_full
            )
            return TreePlan(trees, positions, self._numbers_of(requests, mask), mask, counts)
        trees = grow_trees(log_probs, tokens, bonus, self._width)
        if is_full:
            write_full_mask(ancestor_mask(trees), prefix_lens, mask)
        else:
            mask[: requests * self._width**2].copy_(ancestor_mask(trees).flatten())
        counts[:, : levels + 1].copy_(count_nodes(trees, levels))
        positions = prefix_lens[:, None] + trees.depths
        return TreePlan(trees, positions, self._numbers_of(requests, mask), mask, counts)

    def _numbers_of(self, requests: int, like: Tensor) -> Tensor:
        """0, 1, … for the nodes of a batch, `[R, N]`; made anew only for a larger batch."""
        if len(self._numbers) < requests:
            numbers = torch.arange(requests * self._width, device=like.device)
            self._numbers = numbers.view(requests, self._width)
        return self._numbers[:requests]

    def _mask_space(self, batch: Batch) -> tuple[Tensor, bool]:
        """Where the mask goes, flat, and whether its rows hold the prefix too (`FULL_MASK`).

        The backend's own buffer where it has one: captured graphs read that one, and handing it
        back spares the backend the copy. Cells of the prefix are left as they are, since Triton
        attention does not read them (kernels/ops/attention/extend_attention.py:378).
        """
        requests, width = len(batch.seq_lens), self._width
        owned = self._runner.attn_backend.verify_mask
        is_full = (default_tree_mask_mode() if owned is None else owned.mode) == (
            TreeMaskMode.FULL_MASK
        )
        if owned is not None and owned.fits(requests):
            return owned.buffer, is_full
        cells = requests * width * width
        if is_full:
            # a batch beyond the captured sizes, or no graphs at all
            cells += width * int(batch.spec_info.reserved_seq_lens_cpu.sum())
        return torch.empty(cells, dtype=torch.bool, device=batch.seq_lens.device), is_full
