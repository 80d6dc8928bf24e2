"""Places of SGLang 0.5.17 that have no seam for a registered algorithm, as hooks of its registry.

Lines are below `sglang/srt/`, or `sglang/` where a path begins with `kernels/`. Every hook leaves
other algorithms as they are.
"""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Final

from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_server_args
from torch import Tensor

from ddtree_sglang.algorithm import DDTreeAlgorithm
from ddtree_sglang.options import ALGORITHM, add_flags, publish_flags, read_options
from ddtree_sglang.planner import capture_verify_input
from ddtree_sglang.reserve import row_headroom, slots_a_step
from ddtree_sglang.result import TreeBatchResult
from ddtree_sglang.stock import AnswerManager, Batch, GraphRunner, JsonObject
from ddtree_sglang.tally import count_steps, tree_fields


def add_arguments(result: None, parser: argparse.ArgumentParser) -> None:
    """Add our flags to SGLang's parser (server_args.py:8214)."""
    add_flags(parser)


def read_arguments(cls: type, given: argparse.Namespace) -> None:
    """Keep our flags where every process finds them (server_args.py:8463)."""
    publish_flags(given, os.environ)


def graph_spec_info(stock: Callable[..., object], runner: GraphRunner, num_tokens: int) -> object:
    """Capture the target's verify pass with a mask.

    Stock captures the DFLASH family without one on the backends that have a causal path
    (model_executor/runner/decode_cuda_graph_runner.py:1307): the graph would verify a tree as a
    chain, and nothing would say so.
    """
    target = runner.model_runner
    if target.is_draft_worker or not isinstance(target.spec_algorithm, DDTreeAlgorithm):
        return stock(runner, num_tokens)
    owned = runner.attn_backend.verify_mask
    mask = runner.buffers.custom_mask if owned is None else owned.buffer
    return capture_verify_input(runner.captured_req_width, read_options(os.environ).topk, mask)


def move_slots(
    stock: Callable[..., None],
    buffers: Tensor,
    strides: Tensor,
    targets: Tensor,
    sources: Tensor,
    *sizes: object,
) -> None:
    """Move cache entries with a barrier (kernels/ops/kvcache/cache_move.py:100)."""
    move = stock
    if targets.is_cuda and get_server_args().speculative_algorithm == ALGORITHM:
        from ddtree_sglang.move_kernel import move_on_gpu  # needs Triton

        move = move_on_gpu
    move(buffers, strides, targets, sources, *sizes)


def tally_steps(
    predicted: Sequence[Sequence[int]], processor: object, result: object, batch: Batch
) -> None:
    """Count each request's step (managers/scheduler_components/batch_result_processor.py:624)."""
    if isinstance(result, TreeBatchResult):
        count_steps(predicted, batch.reqs, result)


def answer_fields(
    result: None, manager: AnswerManager, meta_info: JsonObject, received: object, place: int
) -> None:
    """Add the `ddtree_*` fields to a finished answer (managers/tokenizer_manager.py:2739)."""
    if manager.server_args.speculative_algorithm == ALGORITHM:
        meta_info.update(tree_fields(meta_info, read_options(os.environ)))


def server_info_fields(resolved: JsonObject, manager: object, base: object) -> JsonObject:
    """Show the tree's sizes in `/server_info` (managers/tokenizer_manager.py:2066)."""
    if resolved.get("speculative_algorithm") != ALGORITHM:
        return resolved
    options = read_options(os.environ)
    return resolved | {
        "speculative_ddtree_budget": options.budget,
        "speculative_ddtree_topk_cap": options.topk,
        "speculative_ddtree_trace": options.trace,
    }


_SRT: Final = "sglang.srt."
HOOKS: Final[dict[str, tuple[HookType, Callable[..., object]]]] = {
    _SRT + "server_args.ServerArgs.add_cli_args": (HookType.AFTER, add_arguments),
    _SRT + "server_args.ServerArgs.from_cli_args": (HookType.BEFORE, read_arguments),
    _SRT + "mem_cache.allocation_sizing.get_alloc_len_per_decode": (HookType.AFTER, slots_a_step),
    _SRT + "mem_cache.allocation_sizing.get_req_to_token_extra_context_len": (
        HookType.AFTER,
        row_headroom,
    ),
    _SRT + "model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.get_spec_info": (
        HookType.AROUND,
        graph_spec_info,
    ),
    "sglang.kernels.ops.kvcache.cache_move.copy_all_layer_kv_cache_func": (
        HookType.AROUND,
        move_slots,
    ),
    _SRT + "managers.scheduler_components.batch_result_processor.SchedulerBatchResultProcessor"
    "._resolve_spec_v2_tokens": (HookType.AFTER, tally_steps),
    _SRT + "managers.tokenizer_manager.TokenizerManager._calculate_spec_decoding_metrics": (
        HookType.AFTER,
        answer_fields,
    ),
    _SRT + "managers.tokenizer_manager.TokenizerManager.resolved_config_dict": (
        HookType.AFTER,
        server_info_fields,
    ),
}
"""Target → when it is called, and what."""


def install() -> None:
    """Hand the hooks to SGLang, which applies them once all plug-ins are loaded."""
    for target, (when, hook) in HOOKS.items():
        HookRegistry.register(target, hook, when)
