"""Cache slots that one step of a request may write, and the room for them.

A step writes the draft block and the tree behind the committed tokens, b and N slots from the same
place. With overlap scheduling the committed length lags by one step, whose path has at most
min(b, N) tokens. 2 × max(b, N) slots hold both; stock DFLASH reserves 2 × N, which a block wider
than the tree overruns (b = 16, N = 9: 9 + 16 > 18) into slots of other requests.

Slots are handed out some steps in advance while enough are free; those that a request does not
use go back with its others.
"""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch
from sglang.srt.mem_cache.allocation import alloc_for_spec_decode
from sglang.srt.mem_cache.allocation_sizing import get_alloc_reserve_per_decode
from sglang.srt.runtime_context import get_server_args
from sglang.srt.speculative.dflash_info_v2 import DFlashDraftInputV2
from sglang.srt.utils.common import is_pin_memory_available
from torch import Tensor

from ddtree_sglang.options import ALGORITHM
from ddtree_sglang.stock import Arguments, Batch

SLOTS_AHEAD: Final = 64
"""Slots beyond its need that a request gets when it gets some."""


@dataclass
class TreeDraftInput(DFlashDraftInputV2):
    """DFLASH's state between steps (the bonus tokens), reserving for block and tree."""

    @classmethod
    def of(cls, bonus_tokens: Tensor, prefix_lens: Tensor) -> TreeDraftInput:
        """The state after a step; both `[R]`."""
        device = bonus_tokens.device
        return cls(
            topk_p=_nothing(len(bonus_tokens), torch.float32, device),
            topk_index=_nothing(len(bonus_tokens), torch.int64, device),
            bonus_tokens=bonus_tokens.to(torch.int64),
            new_seq_lens=prefix_lens.to(torch.int64),
            hidden_states=_nothing(len(bonus_tokens), torch.float16, device),
        )

    def prepare_for_decode(self, batch: Batch) -> None:
        """Reserve the step's slots in each request's row and publish the committed lengths.

        Called by the scheduler (spec_utils.py:1037). The lengths lag under overlap; the row's
        slots beyond them are there before the step runs, so the step asks the host for nothing.
        """
        if batch.batch_size() == 0:
            return
        batch.maybe_evict_swa()
        if batch.sampling_info.penalizer_orchestrator.is_required:
            batch.cumulate_penalty_output_tokens()
        committed = [int(req.kv_committed_len) for req in batch.reqs]
        allocated = [int(req.kv.kv_allocated_len) for req in batch.reqs]
        reserved = _reserved(committed, allocated, batch)
        for req in batch.reqs:
            req.decode_batch_idx += 1
        if reserved != allocated:
            _allocate(batch, allocated, reserved)
        batch.seq_lens_cpu = torch.tensor(committed, dtype=torch.int64)
        batch.seq_lens_sum = sum(committed)
        self.reserved_seq_lens_cpu = torch.tensor(reserved, dtype=torch.int32)
        self.reserved_seq_lens_sum = sum(reserved)


def _reserved(committed: Sequence[int], allocated: Sequence[int], batch: Batch) -> list[int]:
    """Slots of each request's row that the step may count on."""
    reserve = get_alloc_reserve_per_decode()
    needed = [max(now, length + reserve) for now, length in zip(allocated, committed, strict=True)]
    # With some slots in advance, most steps need no allocation and none of its launches.
    ahead = [
        least if least == now else least + SLOTS_AHEAD
        for now, least in zip(allocated, needed, strict=True)
    ]
    free = batch.tree_cache.token_to_kv_pool_allocator.available_size()
    return ahead if sum(ahead) - sum(allocated) <= free else needed


def _allocate(batch: Batch, allocated: Sequence[int], reserved: Sequence[int]) -> None:
    """Give each request the slots from what it has to what is reserved."""
    allocated_cpu, reserved_cpu = _host(allocated, batch.device), _host(reserved, batch.device)
    alloc_for_spec_decode(
        batch.tree_cache,
        batch.req_to_token_pool,
        reqs=batch.reqs,
        req_pool_indices=batch.req_pool_indices,
        cur_kv_lens=allocated_cpu.to(batch.device, non_blocking=True),
        cur_kv_lens_cpu=allocated_cpu,
        nxt_kv_lens=reserved_cpu.to(batch.device, non_blocking=True),
        nxt_kv_lens_cpu=reserved_cpu,
        num_needed_tokens=sum(reserved) - sum(allocated),
        batch=batch,
    )


@lru_cache
def _nothing(requests: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`[R, 0]`, for EAGLE's fields, which the DFLASH family leaves empty."""
    return torch.empty(requests, 0, dtype=dtype, device=device)


def _host(lengths: Sequence[int], device: torch.device | str) -> Tensor:
    """`[R]` int32 on the host, pinned where the device copies without waiting."""
    return torch.tensor(lengths, dtype=torch.int32, pin_memory=is_pin_memory_available(device))


def slots_a_step(stock: int, server_args: Arguments | None = None) -> int:
    """Slots that SGLang counts a step, 2 of which it reserves: at least the draft block.

    Hooked after `get_alloc_len_per_decode` (mem_cache/allocation_sizing.py:9).
    """
    args = server_args or _global_args()
    if args.speculative_algorithm != ALGORITHM:
        return stock
    return max(stock, int(args.speculative_dflash_block_size or 0))


def row_headroom(stock: int, server_args: Arguments) -> int:
    """Cells of a request's row beyond the context length: the whole reserve, and what is ahead.

    Hooked after `get_req_to_token_extra_context_len` (mem_cache/allocation_sizing.py:46). Stock
    counts 4 + N at page size 1; close to the context limit the reserve would run into the row of
    another request.
    """
    if server_args.speculative_algorithm != ALGORITHM:
        return stock
    reserve: int = get_alloc_reserve_per_decode(server_args)
    return max(stock, reserve + SLOTS_AHEAD + (server_args.page_size or 1))


def _global_args() -> Arguments:
    args: Arguments = get_server_args()
    return args
