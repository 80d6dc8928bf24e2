"""One decode step: draft a block, grow a tree, verify it, keep the accepted path.

DFLASH's worker drafts and keeps the drafter's cache; SGLang's own tree verification accepts,
samples, constrains, and moves the accepted cache entries to the front. Nothing between waits for
the device. Lines are of SGLang 0.5.17, below `sglang/srt/`.
"""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any
from __future__ import annotations

import contextlib
import os
from copy import deepcopy

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func
from sglang.kernels.ops.speculative.dflash import _prepare_dflash_draft_block_unchecked
from sglang.srt.model_executor.forward_batch_info import (
    CaptureHiddenMode,
    ForwardBatch,
    ForwardMode,
)
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.eagle_worker_common import run_eagle_verify
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from torch import Tensor

from ddtree_sglang.head import CandidateHead, head_weight
from ddtree_sglang.options import read_options
from ddtree_sglang.planner import TreePlanner
from ddtree_sglang.reserve import TreeDraftInput
from ddtree_sglang.result import with_tree_counts
from ddtree_sglang.stock import Arguments, Barrier, Batch, Publish, RequestPool, StepResult


class DDTreeWorker(DFlashWorkerV2):
    """DFLASH's worker with another decode step; prefill and idle steps are DFLASH's."""

    def __init__(self, server_args: Arguments, *args: object, **kwargs: object) -> None:
        self.options = read_options(os.environ)
        block = int(server_args.speculative_dflash_block_size or 0)
        # To the parent and the drafter, "draft tokens" are the block, and there is no tree.
        draft_args = deepcopy(server_args)
        draft_args.override(
            "ddtree.draft", speculative_num_draft_tokens=block, speculative_eagle_topk=1
        )
        super().__init__(draft_args, *args, **kwargs)
        self.depth = min(block - 1, self.options.budget)  # longest path below the root
        self.planner = TreePlanner(self.model_runner, self.options.width)

    def alloc_memory_pool(
        self,
        memory_pool_config: object,
        req_to_token_pool: RequestPool,
        token_to_kv_pool_allocator: object,
    ) -> None:
        """As the parent, then the head's buffers: the pool's size bounds every batch."""
        super().alloc_memory_pool(memory_pool_config, req_to_token_pool, token_to_kv_pool_allocator)
        self.head = CandidateHead(
            head_weight(self.model_runner.model),
            self.block_size,
            self.options.topk,
            rows=int(req_to_token_pool.size),
        )

    def init_cuda_graphs(self) -> None:
        """As the parent, then the tree's kernels, which are outside of the graphs."""
        super().init_cuda_graphs()
        if self.head.tokens.is_cuda:
            from ddtree_sglang.tree_kernel import compile_kernels  # needs Triton

            self.head.log_probs.zero_()
            self.head.tokens.zero_()
            compile_kernels(self.head.log_probs, self.head.tokens, self.options.width, self.depth)

    def _maybe_build_draft_sampler(self) -> CandidateHead:
        """What the parent appends to the drafter's graphs instead of its argmax."""
        return self.head

    def _make_next_draft_input_prefill(
        self, *, bonus_tokens: Tensor, seq_lens: Tensor
    ) -> TreeDraftInput:
        return TreeDraftInput.of(bonus_tokens, seq_lens)

    def _make_next_draft_input_decode(
        self, *, bonus_tokens: Tensor, new_seq_lens: Tensor
    ) -> TreeDraftInput:
        return TreeDraftInput.of(bonus_tokens, new_seq_lens)

    def forward_batch_generation(
        self,
        batch: Batch,
        on_publish: Publish | None = None,
        grammar_barrier: Barrier | None = None,
    ) -> StepResult:
        """Return the batch's tokens and the drafter's next input."""
        mode = batch.forward_mode
        if mode.is_extend() or batch.is_extend_in_batch or mode.is_idle():
            stock: StepResult = super().forward_batch_generation(batch, on_publish, grammar_barrier)
            return stock
        self._validate_phase1_sampling_support(batch)
        requests = len(batch.seq_lens)
        positions, slots = self._draft(batch)
        plan = self.planner.plan(self.head.log_probs[:requests], self.head.tokens[:requests], batch)
        batch.spec_info = plan.verify_input(self.depth, self.options)
        result = self._verify(batch, grammar_barrier)
        self._publish_reads_done()
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        self._keep_features(result, positions, slots)
        result.next_draft_input = self._make_next_draft_input_decode(
            bonus_tokens=result.next_draft_input.bonus_tokens, new_seq_lens=result.new_seq_lens
        )
        return with_tree_counts(result, plan, self.depth, self.options)

    def _draft(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Fill the head's buffers; return the block's positions and slots, both `[R, b]`."""
        ids, positions, slots = self._block(batch)
        requests, block = ids.shape
        bound = self._host_bound(batch, block)
        embedded = self.model_runner.model.get_input_embeddings()(ids)
        forward_batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=requests,
            input_ids=ids.flatten(),
            req_pool_indices=batch.req_pool_indices,
            seq_lens=batch.seq_lens,
            out_cache_loc=slots.flatten(),
            seq_lens_sum=int(bound.sum()),
            seq_lens_cpu=bound,
            positions=positions.flatten(),
            input_embeds=embedded.flatten(0, 1),
            spec_algorithm=SpeculativeAlgorithm.DFLASH,
            spec_info=self._draft_block_spec_info,
            capture_hidden_mode=CaptureHiddenMode.NULL,
        )
        with torch.inference_mode():
            drafted = self.draft_model_runner.forward(forward_batch)
            if self._draft_sampler is None or not drafted.can_run_graph:
                self.head(drafted.logits_output.hidden_states)
        return positions, slots

    def _block(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids, positions and slots of the draft blocks, `[R, b]` each, in static buffers."""
        requests, block = len(batch.seq_lens), self.block_size
        self._ensure_draft_block_buffers(requests)
        ids = self._draft_block_ids_buf[:requests]
        positions = self._draft_block_positions_buf[:requests]
        slots = self._draft_verify_out_cache_loc_buf[:requests]
        bonus, prefix_lens = batch.spec_info.bonus_tokens, batch.seq_lens
        req_to_token = self.model_runner.req_to_token_pool.req_to_token
        if self._use_triton_prepare_block:
            _prepare_dflash_draft_block_unchecked(
                bonus_tokens=bonus,
                prefix_lens=prefix_lens,
                req_pool_indices=batch.req_pool_indices,
                req_to_token=req_to_token,
                block_ids_out=ids,
                positions_out=positions,
                cache_loc_out=slots,
                mask_token_id=int(self._mask_token_id),
            )
            return ids, positions, slots
        ids.fill_(int(self._mask_token_id))
        ids[:, 0].copy_(bonus)
        torch.add(prefix_lens[:, None], self._block_pos_offsets, out=positions)
        found = assign_extend_cache_locs_func(
            req_pool_indices=batch.req_pool_indices,
            req_to_token=req_to_token,
            start_offset=prefix_lens,
            end_offset=prefix_lens + block,
            batch_size=requests,
            draft_token_num=block,
            device=self.device,
        )
        slots.copy_(found.view(requests, block))
        return ids, positions, slots

    @staticmethod
    def _host_bound(batch: Batch, block: int) -> Tensor:
        """`[R]` int32 on the host, lengths that no prefix exceeds; SGLang plans attention by it."""
        if batch.seq_lens_cpu is not None:
            return (batch.seq_lens_cpu + block).to(torch.int32)
        return batch.spec_info.reserved_seq_lens_cpu.to(torch.int32)

    def _verify(self, batch: Batch, grammar_barrier: Barrier | None) -> StepResult:
        """SGLang's verify step.

        Afterwards each request's path, its tokens, features and cache entries, stands at the
        front of the request's N rows.
        """
        result: StepResult = run_eagle_verify(
            batch,
            target_worker=self.target_worker,
            req_to_token_pool=self.model_runner.req_to_token_pool,
            token_to_kv_pool_allocator=self.model_runner.token_to_kv_pool_allocator,
            plan_stream=None,
            plan_stream_ctx=contextlib.nullcontext(),
            topk=self.options.topk,  # 1: the path is a chain and stands at the front already
            num_steps=self.depth,
            num_draft_tokens=self.options.width,
            device=self.device,
            metadata_ready_pre_pad=False,
            finalize_tree_path=True,
            grammar_barrier=grammar_barrier,
        )
        return result

    def _publish_reads_done(self) -> None:
        """Tell the scheduler anew when the step has read its requests' rows.

        A graph replay of the DFLASH family publishes that before it runs
        (decode_cuda_graph_runner.py:1201), but moving a tree's path reads them after it. Without
        a replay nothing is published and the scheduler waits for the whole step.
        """
        if self.model_runner.war_fastpath_read_done_event is not None:
            done = torch.get_device_module(self.device).Event()
            done.record()
            self.model_runner.war_fastpath_read_done_event = done

    def _keep_features(self, result: StepResult, positions: Tensor, slots: Tensor) -> None:
        """Put the target's features of the accepted path into the drafter's cache."""
        requests, rows = len(slots), self.depth + 1
        output = result.logits_output
        if output.hidden_states is None:
            raise RuntimeError("the target's verify pass gave no features for the drafter")
        hidden = output.hidden_states.view(requests, self.options.width, -1)[:, :rows]
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=hidden.reshape(requests * rows, -1),
            cache_loc=slots[:, :rows].reshape(-1),
            cache_loc_2d=slots[:, :rows].contiguous(),
            positions=positions[:, :rows].reshape(-1),
            commit_lens=result.accept_lens,
        )
        output.hidden_states = None  # large, and nobody after this reads it
