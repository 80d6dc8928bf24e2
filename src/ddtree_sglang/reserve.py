"""Cache slots that one step of a request may write, and the room for them.

A step writes the draft block and the tree behind the committed tokens, b and N slots from the same
place. With overlap scheduling the committed length lags by one step, whose path has at most
min(b, N) tokens. 2 × max(b, N) slots hold both; stock DFLASH reserves 2 × N, which a block wider
than the tree overruns (b = 16, N = 9: 9 + 16 > 18) into slots of other requests.
"""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any
from __future__ import annotations

from dataclasses import dataclass

import torch
from sglang.srt.mem_cache.allocation import alloc_for_spec_decode
from sglang.srt.mem_cache.allocation_sizing import get_alloc_reserve_per_decode
from sglang.srt.runtime_context import get_server_args
from sglang.srt.speculative.dflash_info_v2 import DFlashDraftInputV2
from sglang.srt.speculative.draft_worker_common import make_draft_input_v2
from sglang.srt.utils.common import is_pin_memory_available
from torch import Tensor

from ddtree_sglang.options import ALGORITHM
from ddtree_sglang.stock import Arguments, Batch


@dataclass
class TreeDraftInput(DFlashDraftInputV2):
    """DFLASH's state between steps (the bonus tokens), reserving for block and tree."""

    @classmethod
    def of(cls, bonus_tokens: Tensor, prefix_lens: Tensor) -> TreeDraftInput:
        """The state after a step; both `[R]`."""
        made = make_draft_input_v2(bonus_tokens=bonus_tokens, new_seq_lens=prefix_lens)
        return cls(
            topk_p=made.topk_p,
            topk_index=made.topk_index,
            bonus_tokens=made.bonus_tokens,
            new_seq_lens=made.new_seq_lens,
            hidden_states=made.hidden_states,
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
        reserve = get_alloc_reserve_per_decode()
        committed = [int(req.kv_committed_len) for req in batch.reqs]
        allocated = [int(req.kv.kv_allocated_len) for req in batch.reqs]
        reserved = [
            max(now, length + reserve) for now, length in zip(allocated, committed, strict=True)
        ]
        for req in batch.reqs:
            req.decode_batch_idx += 1
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
        batch.seq_lens_cpu = torch.tensor(committed, dtype=torch.int64)
        batch.seq_lens_sum = sum(committed)
        self.reserved_seq_lens_cpu = reserved_cpu
        self.reserved_seq_lens_sum = sum(reserved)


def _host(lengths: list[int], device: torch.device | str) -> Tensor:
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
    """Cells of a request's row beyond the context length: the whole reserve.

    Hooked after `get_req_to_token_extra_context_len` (mem_cache/allocation_sizing.py:46). Stock
    counts 4 + N at page size 1; close to the context limit the reserve would run into the row of
    another request.
    """
    if server_args.speculative_algorithm != ALGORITHM:
        return stock
    reserve: int = get_alloc_reserve_per_decode(server_args)
    return max(stock, reserve + (server_args.page_size or 1))


def _global_args() -> Arguments:
    args: Arguments = get_server_args()
    return args
