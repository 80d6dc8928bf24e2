"""What has to behave differently in SGLang 0.5.17 without a GPU, as hooks of its own registry.

SGLang loads `register` through the entry point in `site/`, in every process, before it reads its
arguments. A hook whose target has moved is reported by SGLang as "Failed to apply hooks".
Lines are of SGLang 0.5.17, below `sglang/srt/`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sglang_cpu_check.attention import attend_block, block_masks
from sglang_cpu_check.stock import Arguments, Backend, Batch, Drafter, Layer

BACKEND = "torch_native"
"""SGLang's attention backend for processors without AMX."""


def register() -> None:
    """Register every hook below; SGLang applies them."""
    # not installed where types are checked
    from sglang.srt.plugins.hook_registry import (  # type: ignore[import-not-found]
        HookRegistry,
        HookType,
    )

    for target, hook in HOOKS.items():
        HookRegistry.register(target, hook, HookType.AROUND)


def verify_attention(
    stock: Callable[..., Tensor],
    backend: Backend,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer: Layer,
    forward_batch: Batch,
    save_kv_cache: bool = True,
) -> Tensor:
    """Attention of verify passes and draft blocks; everything else goes to the stock method.

    The stock method (layers/attention/torch_native_backend.py:279) reads `extend_prefix_lens`,
    which a verify pass does not have, and knows no tree mask.
    Needed until the backend handles `ForwardMode.TARGET_VERIFY`.
    """
    if not forward_batch.forward_mode.is_target_verify():
        return stock(backend, q, k, v, layer, forward_batch, save_kv_cache)
    if save_kv_cache and k is not None:
        _write_to_cache(backend, layer, forward_batch, k, v)
    keys = backend.token_to_kv_pool.get_key_buffer(layer.layer_id)
    values = backend.token_to_kv_pool.get_value_buffer(layer.layer_id)
    width = forward_batch.spec_info.draft_token_num
    masks = block_masks(forward_batch.spec_info.custom_mask, forward_batch.batch_size, width)
    sees_all = layer.attn_type.value == "encoder_only"  # DFlash's drafter fills a block at once
    queries = q.view(-1, width, layer.tp_q_head_num, layer.qk_head_dim)
    lengths = forward_batch.seq_lens.tolist()
    outputs = []
    for r, row in enumerate(forward_batch.req_pool_indices.tolist()):
        slots = backend.req_to_token_pool.req_to_token[row, : lengths[r] + width]
        allowed = None if sees_all else masks[r]
        outputs.append(attend_block(queries[r], keys[slots], values[slots], allowed, layer.scaling))
    return torch.stack(outputs).view(len(q), -1)


def _write_to_cache(backend: Backend, layer: Layer, batch: Batch, k: Tensor, v: Tensor) -> None:
    # not installed where types are checked
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc  # type: ignore[import-not-found]

    slots = KVWriteLoc(batch.out_cache_loc, backend.swa_out_cache_loc)
    backend.token_to_kv_pool.set_kv_buffer(layer, slots, k, v)


def dflash_arguments(stock: Callable[[Arguments], None], server_args: Arguments) -> None:
    """Check the arguments of DFLASH as stock does, on a device that stock refuses.

    The stock function (arg_groups/speculative_hook.py:150) allows CUDA and NPU by name and looks
    at the device nowhere else. Needed until it allows the CPU.
    """
    device = server_args.device
    server_args.device = "npu"
    try:
        stock(server_args)
    finally:
        server_args.device = device


def draft_backend_argument(stock: Callable[[Arguments], None], server_args: Arguments) -> None:
    """Give the drafter the backend of the target.

    The stock function (arg_groups/speculative_hook.py:435) replaces it by FlashInfer, which needs
    CUDA. Needed until `torch_native` is among the drafter's backends.
    """
    server_args.speculative_draft_attention_backend = BACKEND


def draft_backend(stock: Callable[..., str], **arguments: object) -> str:
    """The drafter's attention backend when its worker starts.

    The stock function (speculative/draft_worker_common.py:45) makes the same choice again from a
    list of its own. Needed as long as `draft_backend_argument`.
    """
    return BACKEND


def draft_embeddings(
    stock: Callable[..., object],
    drafter: Drafter,
    *args: object,
    input_embeds: Tensor,
    **kwargs: object,
) -> object:
    """Give the drafter its block in the precision of its weights.

    Outside of graphs stock casts it to bfloat16 (model_executor/model_runner.py:1344), which a
    drafter in float32 refuses. Needed until that line takes the model's precision.
    """
    embeds = input_embeds.to(drafter.fc.weight.dtype)
    return stock(drafter, *args, input_embeds=embeds, **kwargs)


def record_stream(stock: Callable[[Tensor, object], None], tensor: Tensor, stream: object) -> None:
    """Do nothing for tensors outside a GPU, which have no allocator that tracks streams.

    Called from speculative/dflash_worker_v2.py:1482 without asking where the tensor is.
    Needed until that line asks, as `record_stream_each` in spec_utils.py does.
    """
    if tensor.is_cuda:
        stock(tensor, stream)


HOOKS: dict[str, Callable[..., object]] = {
    "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend.forward_extend": (
        verify_attention
    ),
    "sglang.srt.arg_groups.speculative_hook._handle_dflash": dflash_arguments,
    "sglang.srt.arg_groups.speculative_hook._resolve_dflash_draft_attention_backend": (
        draft_backend_argument
    ),
    "sglang.srt.speculative.draft_worker_common._resolve_draft_attention_backend_fallback": (
        draft_backend
    ),
    "sglang.srt.models.dflash.DFlashDraftModel.forward": draft_embeddings,
    "torch.Tensor.record_stream": record_stream,
}
"""Target in SGLang or torch → function called around it."""
