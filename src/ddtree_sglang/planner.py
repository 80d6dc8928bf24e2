"""A batch's trees in the form that SGLang's target verifies: tokens, positions, links and mask."""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.eagle_info import EagleVerifyInput
from sglang.srt.speculative.eagle_utils import TreeMaskMode, default_tree_mask_mode
from torch import Tensor

from ddtree_sglang.buffers import Step
from ddtree_sglang.options import TreeOptions
from ddtree_sglang.stock import Batch, Runner
from ddtree_sglang.tree import ancestor_mask, count_nodes, grow_trees, write_full_mask


def tree_verify_input(step: Step, mask: Tensor, options: TreeOptions) -> EagleVerifyInput:
    """What SGLang verifies.

    EAGLE's type rather than DFLASH's: sampling, grammar and recurrent layers take the links
    from it (hybrid_linear_attn_backend.py:278 tests for the type).
    """
    return EagleVerifyInput(
        draft_token=step.trees.tokens.flatten(),
        custom_mask=mask,
        positions=step.positions.flatten(),
        retrieve_index=step.numbers,
        retrieve_next_token=step.trees.children,
        retrieve_next_sibling=step.trees.siblings,
        retrieve_cum_len=None,
        spec_steps=step.path.nodes.shape[1] - 1,
        topk=options.topk,
        draft_token_num=options.width,
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
    """Plans each step of a target."""

    def __init__(self, target_runner: Runner, options: TreeOptions) -> None:
        self._runner = target_runner
        self._options = options

    def plan(self, log_probs: Tensor, tokens: Tensor, batch: Batch, step: Step) -> EagleVerifyInput:
        """Grow the trees of candidates, both `[R, L, K]`, in `step`; waits for no GPU."""
        bonus, prefix_lens = batch.spec_info.bonus_tokens, batch.seq_lens
        mask, is_full = self._mask_space(batch)
        if log_probs.is_cuda:
            from ddtree_sglang.tree_kernel import grow_trees_on_gpu  # needs Triton

            grow_trees_on_gpu(log_probs, tokens, bonus, prefix_lens, mask, step, full_mask=is_full)
        else:
            _grow(log_probs, tokens, bonus, prefix_lens, mask, step, full_mask=is_full)
        return tree_verify_input(step, mask, self._options)

    def _mask_space(self, batch: Batch) -> tuple[Tensor, bool]:
        """Where the mask goes, flat, and whether its rows hold the prefix too (`FULL_MASK`).

        The backend's own buffer where it has one: captured graphs read that one, and handing it
        back spares the backend the copy. Cells of the prefix are left as they are, since Triton
        attention does not read them (kernels/ops/attention/extend_attention.py:378).
        """
        requests, width = len(batch.seq_lens), self._options.width
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


def _grow(
    log_probs: Tensor,
    tokens: Tensor,
    bonus: Tensor,
    prefix_lens: Tensor,
    mask: Tensor,
    out: Step,
    *,
    full_mask: bool,
) -> None:
    """What `tree_kernel.grow_trees_on_gpu` does, by the definitions."""
    trees = grow_trees(log_probs, tokens, bonus, out.positions.shape[1])
    cells = ancestor_mask(trees)
    if full_mask:
        write_full_mask(cells, prefix_lens, mask)
    else:
        mask[: cells.numel()].copy_(cells.flatten())
    out.trees.copy_(trees)
    torch.add(prefix_lens[:, None], trees.depths, out=out.positions)
    levels = log_probs.shape[1]
    out.counts[:, : levels + 1] = count_nodes(trees, levels)
