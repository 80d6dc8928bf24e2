"""Move cache entries of all layers between slots, all read before any is written.

The slots that a path leaves and those that it goes to overlap: node 3 may go to slot 1 and node 5
to slot 3. SGLang's kernel reads and writes without a barrier between (kernels/ops/kvcache/
cache_move.py:95), so a warp that is late could read what another has written already.
"""

# Triton is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-untyped-decorators
from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl
from torch import Tensor


@triton.jit(
    do_not_specialize=["moves"], do_not_specialize_on_alignment=["moves", "targets", "sources"]
)
def _move(
    buffers: tl.tensor,  # [2 × layers] addresses
    strides: tl.tensor,  # [2 × layers] bytes a slot
    targets: tl.tensor,  # [moves]
    sources: tl.tensor,  # [moves]
    moves: int,
    LANES: tl.constexpr,  # power of two ≥ moves
    BYTES: tl.constexpr,  # of a slot, in one program
) -> None:
    buffer, tile = tl.program_id(0), tl.program_id(1)
    stride = tl.load(strides + buffer)
    base = tl.cast(tl.load(buffers + buffer), tl.pointer_type(tl.uint8))
    move = tl.arange(0, LANES)
    byte = tile * BYTES + tl.arange(0, BYTES)
    source = tl.load(sources + move, mask=move < moves, other=0)
    target = tl.load(targets + move, mask=move < moves, other=0)
    # most nodes stay where they are, and what is behind a path's end goes nowhere
    is_moved = (move < moves) & (source != target)
    inside = is_moved[:, None] & (byte < stride)[None, :]
    entry = tl.load(base + source[:, None] * stride + byte[None, :], mask=inside)
    tl.debug_barrier()
    tl.store(base + target[:, None] * stride + byte[None, :], entry, mask=inside)


def move_on_gpu(
    buffers: Tensor,
    strides: Tensor,
    targets: Tensor,
    sources: Tensor,
    moves: int,
    lanes: int,
    tiles: Mapping[str, int],
) -> None:
    """Copy the first `moves` of the sources to the targets, in every buffer.

    The signature is that of SGLang's `copy_all_layer_kv_cache_func`. Targets that differ from
    their sources are distinct.

    Args:
        buffers: `[2 × layers]`, addresses of the layers' keys and values.
        strides: `[2 × layers]`, bytes a slot.
        targets: slots, int64, as are `sources`.
        sources: slots.
        moves: how many.
        lanes: power of two, at least `moves`.
        tiles: SGLang's choice of `byte_tiles`, `bytes_per_tile` and `num_warps`.
    """
    _move[(len(buffers), tiles["byte_tiles"])](
        buffers,
        strides,
        targets,
        sources,
        moves,
        LANES=lanes,
        BYTES=tiles["bytes_per_tile"],
        num_warps=tiles["num_warps"],
    )
