"""Attention of draft blocks over a paged cache, in torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def attend_block(
    query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor | None, scale: float
) -> Tensor:
    """Attention output of one request's block, `[N, heads, value_dim]`.

    Args:
        query: `[N, heads, head_dim]`, the block's N tokens.
        keys: `[S + N, kv_heads, head_dim]`, S cached tokens, then the block.
        values: `[S + N, kv_heads, value_dim]`.
        allowed: `[N, N]` bool, which tokens of the block a token sees; the S cached ones are
            always seen. None: all.
        scale: factor on the scores.
    """
    mask = None
    if allowed is not None:
        prefix = allowed.new_ones(len(allowed), len(keys) - len(query))
        mask = torch.cat([prefix, allowed], dim=1)
    out = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=mask,
        scale=scale,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return out[0].transpose(0, 1)


def block_masks(custom_mask: Tensor | None, batch_size: int, width: int) -> Tensor:
    """`[R, N, N]` bool, the masks of R blocks of N tokens; causal where none is given.

    Raises:
        RuntimeError: the mask is not R × N × N (SGLang's layout for the CPU, `QLEN_ONLY`).
    """
    if custom_mask is None:
        chain = torch.ones(width, width, dtype=torch.bool).tril()
        return chain.expand(batch_size, width, width)
    return custom_mask.view(batch_size, width, width).bool()
