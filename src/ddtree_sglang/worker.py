"""One decode step: draft a block, grow a tree, verify it, keep the accepted path.

DFLASH's worker drafts and keeps the drafter's cache; SGLang runs the target over the tree, samples
and constrains. What is between is here: nothing waits for the device, and nothing is a launch of
its own that can be part of another, since with small models the host bounds a step. Lines are of
SGLang 0.5.17, below `sglang/srt/`.
"""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any
from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func
from sglang.kernels.ops.speculative.dflash import _prepare_dflash_draft_block_unchecked
from sglang.srt.distributed import get_tp_group
from sglang.srt.model_executor.forward_batch_info import (
    CaptureHiddenMode,
    ForwardBatch,
    ForwardMode,
)
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.eagle_info import EagleVerifyInput
from sglang.srt.speculative.eagle_utils import eagle_prepare_for_verify, eagle_sample
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_utils import (
    SIMULATE_ACC_LEN,
    GrammarTree,
    build_grammar_vocab_mask,
    commit_mamba_states_after_verify,
    record_stream_for_v2_verify,
)
from torch import Tensor

from ddtree_sglang.buffers import Step, StepBuffers
from ddtree_sglang.head import CandidateHead, head_part
from ddtree_sglang.options import read_options
from ddtree_sglang.path import PathBatch, accept_paths
from ddtree_sglang.planner import TreePlanner
from ddtree_sglang.reserve import TreeDraftInput
from ddtree_sglang.result import TreeBatchResult, trace_of
from ddtree_sglang.stock import (
    Arguments,
    Barrier,
    Batch,
    LogitsOutput,
    Publish,
    RequestPool,
    StepResult,
)
from ddtree_sglang.tree import NONE

Constraint = Callable[[], object]
"""Makes the grammar's mask over the verified nodes, None without a grammar; may wait for it."""


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
        self.planner = TreePlanner(self.model_runner, self.options)

    def alloc_memory_pool(
        self,
        memory_pool_config: object,
        req_to_token_pool: RequestPool,
        token_to_kv_pool_allocator: object,
    ) -> None:
        """As the parent, then our buffers: the pool's size bounds every batch."""
        super().alloc_memory_pool(memory_pool_config, req_to_token_pool, token_to_kv_pool_allocator)
        rows, topk = int(req_to_token_pool.size), self.options.topk
        part = head_part(self.model_runner.model, get_tp_group(), topk)
        self.head = CandidateHead(part, self.block_size, topk, rows=rows)
        self.buffers = StepBuffers(
            rows,
            self.options.width,
            self.block_size - 1,
            topk,
            self.depth,
            part.weight.device,
        )

    def init_cuda_graphs(self) -> None:
        """As the parent, then the kernels that are outside of the graphs."""
        super().init_cuda_graphs()
        if self.head.tokens.is_cuda:
            from ddtree_sglang.warmup import compile_kernels  # needs Triton

            cache = self.model_runner.token_to_kv_pool_allocator.get_kvcache()
            compile_kernels(self.head, self.buffers, cache)

    def _maybe_build_draft_sampler(self) -> CandidateHead:
        """What the parent appends to the drafter's graphs instead of its argmax."""
        return self.head

    def _make_next_draft_input_prefill(
        self, *, bonus_tokens: Tensor, seq_lens: Tensor
    ) -> TreeDraftInput:
        return TreeDraftInput.of(bonus_tokens, seq_lens)

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
        positions, slots = self._draft(batch)
        requests = len(slots)
        step = self.buffers.next(requests)
        verify_input = self.planner.plan(
            self.head.log_probs[:requests], self.head.tokens[:requests], batch, step
        )
        result = self._verify(batch, verify_input, step, grammar_barrier)
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        self._keep_features(result, step.path, positions, slots)
        return result

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

    def _verify(
        self,
        batch: Batch,
        verify_input: EagleVerifyInput,
        step: Step,
        grammar_barrier: Barrier | None,
    ) -> TreeBatchResult:
        """Verify the trees and move each accepted path's cache entries to where they belong."""
        record_stream_for_v2_verify(
            batch, None, torch.get_device_module(self.device).current_stream()
        )
        batch.spec_info = verify_input
        forward_batch, is_graph = eagle_prepare_for_verify(
            verify_input, self.model_runner.req_to_token_pool, batch, self.target_worker
        )
        constrained = _constraint(batch, verify_input, grammar_barrier)
        logits_output = self.target_worker.forward_batch_generation(
            batch=None, forward_batch=forward_batch, is_verify=True
        ).logits_output
        path = self._accept(batch, verify_input, logits_output, step, constrained)
        self._commit(batch, path)
        return TreeBatchResult(
            logits_output=logits_output,
            next_token_ids=path.tokens.flatten(),
            can_run_cuda_graph=is_graph,
            speculative_num_draft_tokens=self.options.width,
            next_draft_input=TreeDraftInput.of(path.bonus, path.new_lens),
            accept_lens=path.lens,
            new_seq_lens=path.new_lens,
            # the host forgets these while the device still reads them
            extra_keep_alive_refs=[forward_batch],
            tree_counts=step.counts,
            tree_trace=trace_of(step) if self.options.trace else None,
        )

    def _accept(
        self,
        batch: Batch,
        verify_input: EagleVerifyInput,
        logits_output: LogitsOutput,
        step: Step,
        constrained: Constraint,
    ) -> PathBatch:
        """Fill the step's paths from the target's logits."""
        shape = step.positions.shape
        limits = None
        if _takes_the_best(batch):
            predicted = torch.argmax(logits_output.next_token_logits, dim=-1)
        else:
            # SGLang's own: penalties, biases, grammar, sampling
            predicted, limits, _ = eagle_sample(verify_input, batch, logits_output, constrained())
        slots = batch.out_cache_loc.view(shape)
        accept = accept_paths
        if predicted.is_cuda:
            from ddtree_sglang.path_kernel import accept_paths_on_gpu as accept  # needs Triton
        accept(step.trees, predicted.view(shape), batch.seq_lens, slots, limits, step.path)
        return step.path

    def _commit(self, batch: Batch, path: PathBatch) -> None:
        """Bring the target's caches to the end of each path."""
        cache = self.model_runner.token_to_kv_pool_allocator.get_kvcache()
        cache.move_kv_cache(path.targets.flatten(), path.sources.flatten())
        if self._need_mamba_verify_commit:
            accepted = torch.where(path.nodes == NONE, NONE, path.rows.int())
            commit_mamba_states_after_verify(
                self.target_worker, batch, path.lens, accepted, self.options.width
            )

    def _keep_features(
        self, result: TreeBatchResult, path: PathBatch, positions: Tensor, slots: Tensor
    ) -> None:
        """Put the target's features of the accepted path into the drafter's cache."""
        output, rows = result.logits_output, path.rows.shape[1]
        if output.hidden_states is None:
            raise RuntimeError("the target's verify pass gave no features for the drafter")
        places = slots[:, :rows].contiguous()
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=output.hidden_states.index_select(0, path.rows.flatten()),
            cache_loc=places.flatten(),
            cache_loc_2d=places,
            positions=positions[:, :rows].flatten(),
            commit_lens=path.lens,
        )
        output.hidden_states = None  # large, and nobody after this reads it


def _takes_the_best(batch: Batch) -> bool:
    """Whether the target's most probable token is the answer, as it stands in the logits."""
    info = batch.sampling_info
    return (
        info.is_all_greedy
        and not batch.has_grammar
        and info.acc_additive_penalties is None
        and info.acc_scaling_penalties is None
        and info.logit_bias is None
        and SIMULATE_ACC_LEN <= 0
    )


def _constraint(
    batch: Batch, verify_input: EagleVerifyInput, barrier: Barrier | None
) -> Constraint:
    """Start copying the trees to the host if a grammar needs them; returns what makes its mask."""
    if not batch.has_grammar:
        return lambda: None
    children = verify_input.retrieve_next_token
    tree = GrammarTree.from_device(
        children, verify_input.retrieve_next_sibling, verify_input.draft_token.view(children.shape)
    )
    return lambda: build_grammar_vocab_mask(
        reqs=batch.reqs,
        tree=tree,
        sampling_info=batch.sampling_info,
        device=children.device,
        barrier=barrier,
    )
