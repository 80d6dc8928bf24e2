"""A batch's trees in the form that SGLang's target verifies: tokens, positions, links and mask."""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.eagle_info import EagleVerifyInput
from sglang.srt.speculative.eagle_utils import TreeMaskMode, default_tree_mask_mode
from torch import Tensor

from ddtree_sglang.buffers import Step, StepBuffers
from ddtree_sglang.head import CandidateHead
from ddtree_sglang.options import TreeOptions
from ddtree_sglang.stock import Batch, DraftBatch, LogitsOutput, Runner
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
    """Grows each step's trees, in the drafter's graphs or after them."""

    def __init__(
        self, target_runner: Runner, options: TreeOptions, head: CandidateHead, buffers: StepBuffers
    ) -> None:
        self._runner = target_runner
        self._options = options
        self._head = head
        self._buffers = buffers
        self._captured = False

    def capture(self, runner: object, out: LogitsOutput, batch: DraftBatch, tokens: int) -> None:
        """SGLang's hook for the end of the drafter's graphs; see `VerifyTail.capture`.

        The graph reads the blocks' first tokens and positions: the bonus tokens, and how many
        tokens are before them. Without a mask of fixed address it ends with the candidates.
        """
        self._head(out.hidden_states)
        owned = self._runner.attn_backend.verify_mask
        requests, block = tokens // self._head.block, self._head.block
        if owned is not None and owned.fits(requests):
            bonus = batch.input_ids.view(requests, block)[:, 0]
            prefix_lens = batch.positions.view(requests, block)[:, 0]
            self._grow(requests, bonus, prefix_lens, owned.buffer, _is_full(owned.mode))
            self._captured = True

    def plan(self, batch: Batch, drafted: LogitsOutput, in_graph: bool) -> EagleVerifyInput:
        """What the target verifies; waits for no GPU.

        `drafted`: the drafter's output, from one of its graphs or not.
        """
        requests = len(batch.seq_lens)
        mask, is_full = self._mask_space(batch)
        if not in_graph:
            self._head(drafted.hidden_states)
        if not (in_graph and self._captured):
            self._grow(requests, batch.spec_info.bonus_tokens, batch.seq_lens, mask, is_full)
        return tree_verify_input(self._buffers.of(requests), mask, self._options)

    def _grow(
        self, requests: int, bonus: Tensor, prefix_lens: Tensor, mask: Tensor, is_full: bool
    ) -> None:
        """Grow the trees of the head's candidates."""
        log_probs, tokens = self._head.log_probs[:requests], self._head.tokens[:requests]
        step = self._buffers.of(requests)
        if log_probs.is_cuda:
            from ddtree_sglang.tree_kernel import grow_trees_on_gpu  # needs Triton

            grow_trees_on_gpu(log_probs, tokens, bonus, prefix_lens, mask, step, full_mask=is_full)
        else:
            _grow_by_definition(
                log_probs, tokens, bonus, prefix_lens, mask, step, full_mask=is_full
            )

    def _mask_space(self, batch: Batch) -> tuple[Tensor, bool]:
        """Where the mask goes, flat, and whether its rows hold the prefix too (`FULL_MASK`).

        The backend's own buffer where it has one: captured graphs read that one, and handing it
        back spares the backend the copy. Cells of the prefix are left as they are, since Triton
        attention does not read them (kernels/ops/attention/extend_attention.py:378).
        """
        requests, width = len(batch.seq_lens), self._options.width
        owned = self._runner.attn_backend.verify_mask
        is_full = _is_full(default_tree_mask_mode() if owned is None else owned.mode)
        if owned is not None and owned.fits(requests):
            return owned.buffer, is_full
        cells = requests * width * width
        if is_full:
            # a batch beyond the captured sizes, or no graphs at all
            cells += width * int(batch.spec_info.reserved_seq_lens_cpu.sum())
        return torch.empty(cells, dtype=torch.bool, device=batch.seq_lens.device), is_full


def _is_full(mode: TreeMaskMode) -> bool:
    """Whether a mask's rows hold the prefix too."""
    return bool(mode == TreeMaskMode.FULL_MASK)


def _grow_by_definition(
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
    out.counts.copy_(count_nodes(trees, log_probs.shape[1]))
