"""The parts of SGLang 0.5.17 that the hooks touch; types only, nothing is imported from it."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from torch import Tensor, nn


class Arguments(Protocol):
    """`ServerArgs`."""

    device: str
    speculative_draft_attention_backend: str | None


class Layer(Protocol):
    """`RadixAttention`, one attention layer."""

    layer_id: int
    tp_q_head_num: int
    qk_head_dim: int
    scaling: float
    attn_type: Enum


class Mode(Protocol):
    """`ForwardMode`."""

    def is_target_verify(self) -> bool:
        """Whether blocks of drafted tokens are run, by the target or by DFlash's drafter."""


class Block(Protocol):
    """Any verify input: the blocks of one pass, N tokens a request."""

    draft_token_num: int
    custom_mask: Tensor | None


class Batch(Protocol):
    """`ForwardBatch` in a verify pass of R requests."""

    forward_mode: Mode
    batch_size: int
    spec_info: Block
    req_pool_indices: Tensor
    seq_lens: Tensor
    """`[R]`, cached tokens, the block not counted."""
    out_cache_loc: Tensor


class KeyValuePool(Protocol):
    """`MHATokenToKVPool`: `[slots, heads, dim]` a layer."""

    def get_key_buffer(self, layer_id: int) -> Tensor:
        """Keys of a layer."""

    def get_value_buffer(self, layer_id: int) -> Tensor:
        """Values of a layer."""

    def set_kv_buffer(self, layer: Layer, slots: object, k: Tensor, v: Tensor) -> None:
        """Write keys and values into slots."""


class RequestPool(Protocol):
    """`ReqToTokenPool`."""

    req_to_token: Tensor
    """`[rows, positions]`, cache slot of each position of each request."""


class Backend(Protocol):
    """`TorchNativeAttnBackend`."""

    token_to_kv_pool: KeyValuePool
    req_to_token_pool: RequestPool
    swa_out_cache_loc: Tensor | None


class Drafter(Protocol):
    """`DFlashDraftModel`."""

    fc: nn.Linear
