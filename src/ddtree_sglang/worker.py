"""One decode step: draft a block, grow a tree, verify it, keep the accepted path.

DFLASH's worker drafts and keeps the drafter's cache; SGLang runs the target over the tree, samples
and constrains. What is between waits for nothing, and is captured into the two models' graphs
(`planner`, `tail`), since with small models the host bounds a step. Lines are of SGLang 0.5.17,
below `sglang/srt/`.
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
from ddtree_sglang.path import PathBatch
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
from ddtree_sglang.tail import VerifyTail
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
            rows, self.options.width, self.block_size - 1, topk, self.depth, part.weight.device
        )
        self.planner = TreePlanner(self.model_runner, self.options, self.head, self.buffers)
        cache = self.model_runner.token_to_kv_pool_allocator.get_kvcache()
        self.tail = VerifyTail(self.buffers, cache, self._keep_features)
        # The target's graphs are captured next, the drafter's after them (scheduler.py:970).
        self.model_runner.capture_tail_hooks.append(self.tail.capture)

    def init_cuda_graphs(self) -> None:
        """As the parent, then the kernels for what no graph holds."""
        super().init_cuda_graphs()
        if self.head.tokens.is_cuda:
            from ddtree_sglang.warmup import compile_kernels  # needs Triton

            compile_kernels(self.head, self.buffers)

    def _maybe_build_draft_sampler(self) -> None:
        """Called before the drafter's graphs are captured: they end in our trees, not in argmax."""
        self.draft_model_runner.capture_tail_hooks.append(self.planner.capture)

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
        verify_input = self.planner.plan(batch, *self._draft(batch))
        result = self._verify(batch, verify_input, grammar_barrier)
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        return result

    def _draft(self, batch: Batch) -> tuple[LogitsOutput, bool]:
        """Run the drafter over the blocks; returns its output, and whether a graph made it."""
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
        return drafted.logits_output, bool(drafted.can_run_graph)

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
        self, batch: Batch, verify_input: EagleVerifyInput, grammar_barrier: Barrier | None
    ) -> TreeBatchResult:
        """Run the target over the trees and accept."""
        # The scheduler made these on its own stream, and drops them while we still read them.
        stream = torch.get_device_module(self.device).current_stream()
        record_stream_for_v2_verify(batch, None, stream)
        batch.spec_info = verify_input
        takes_best = _takes_the_best(batch)
        self.tail.let_graphs_accept(takes_best)
        forward_batch, is_graph = eagle_prepare_for_verify(
            verify_input, self.model_runner.req_to_token_pool, batch, self.target_worker
        )
        constrained = _constraint(batch, verify_input, grammar_barrier)
        logits_output = self.target_worker.forward_batch_generation(
            batch=None, forward_batch=forward_batch, is_verify=True
        ).logits_output
        requests, rows = len(batch.seq_lens), self._rows_of_graph(is_graph)
        if takes_best and rows in self.tail.captured:
            step = self.buffers.of(rows)
        else:
            step = self.buffers.of(requests)
            predicted, limits = _predict(batch, verify_input, logits_output, constrained)
            self.tail.run(step, predicted, batch, logits_output, limits)
        self._commit_states(batch, step.path)
        logits_output.hidden_states = None  # large, and nobody after this reads it
        return self._result(step, requests, logits_output, forward_batch, is_graph)

    def _rows_of_graph(self, is_graph: bool) -> int:
        """Requests that the replayed graph was captured for; 0 if none was replayed."""
        return int(self.model_runner.decode_cuda_graph_runner.bs) if is_graph else 0

    def _commit_states(self, batch: Batch, path: PathBatch) -> None:
        """Bring recurrent layers to the end of each path."""
        if not self._need_mamba_verify_commit:
            return
        requests = len(batch.seq_lens)
        rows, nodes = path.rows[:requests], path.nodes[:requests]
        accepted = torch.where(nodes == NONE, NONE, rows.int())
        commit_mamba_states_after_verify(
            self.target_worker, batch, path.lens[:requests], accepted, self.options.width
        )

    def _result(
        self,
        step: Step,
        requests: int,
        logits_output: LogitsOutput,
        forward_batch: object,
        is_graph: bool,
    ) -> TreeBatchResult:
        """The step's result, in memory of its own: the next step writes where this one did."""
        report = step.path.report.like(step.path.report.flat.clone())
        result = TreeBatchResult(
            logits_output=logits_output,
            can_run_cuda_graph=is_graph,
            speculative_num_draft_tokens=self.options.width,
            next_draft_input=TreeDraftInput.of(report.bonus[:requests], report.new_lens[:requests]),
            # the host forgets it while the device still reads it
            extra_keep_alive_refs=[forward_batch],
            tree_trace=trace_of(step, requests) if self.options.trace else None,
        )
        result.show(report, requests)
        return result

    def _keep_features(
        self, features: Tensor, slots: Tensor, positions: Tensor, lens: Tensor
    ) -> object:
        """Put the target's features of the accepted paths into the drafter's cache.

        Returns SGLang's workspace, which a longer prompt replaces (kernels/ops/speculative/
        fused_kv_materialize.py), while captured graphs go on writing into this one.
        """
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=features,
            cache_loc=slots.flatten(),
            cache_loc_2d=slots,
            positions=positions.flatten(),
            commit_lens=lens,
        )
        names = ("_proj_workspace", "_k_workspace", "_v_workspace")
        return tuple(getattr(self._fused_kv_helper, name, None) for name in names)


def _predict(
    batch: Batch, verify_input: EagleVerifyInput, logits_output: LogitsOutput, mask: Constraint
) -> tuple[Tensor, Tensor | None]:
    """The target's token after each node, `[R × N]`, and how long paths may be, `[R]`."""
    if _takes_the_best(batch):
        return torch.argmax(logits_output.next_token_logits, dim=-1), None
    # SGLang's own: penalties, biases, grammar, sampling
    predicted, lens, _ = eagle_sample(verify_input, batch, logits_output, mask())
    return predicted, lens


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
