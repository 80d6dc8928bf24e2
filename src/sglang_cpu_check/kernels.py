"""The `sgl_kernel` operations that SGLang's CPU path calls, written in torch.

The `sgl_kernel` on PyPI holds CUDA kernels alone. Each function below has the name, the arguments
and the effect of the CPU kernel that SGLang 0.5.17 calls at the place its docstring names
("Called from", file and line below `sglang/`). They loop over requests: right, not fast.
What is said of NGRAM holds for every algorithm that verifies trees.

Shape letters: R requests, N verified tokens a request (tree nodes, root included),
P positions a request can hold, A width of `accept_index`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch
from torch import Tensor

NO_NODE = -1
"""Ends a list of children or siblings."""


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write new cache slots into `req_to_token[row, start:end]` of each request.

    Args:
        req_pool_indices: `[R]`, row of each request.
        req_to_token: `[rows, P]`, changed in place.
        start_offset: `[R]`, first position written.
        end_offset: `[R]`, position after the last one.
        out_cache_loc: slots of all requests, one request after the other.
        pool_len: P; the tensor knows it.

    Raises:
        RuntimeError: a request would write past P (the CUDA kernel writes into the next row).

    Called from: srt/mem_cache/allocation.py:640, for every algorithm.
    """
    for row, start, end, taken in _spans(req_pool_indices, start_offset, end_offset):
        req_to_token[row, start:end] = out_cache_loc[taken : taken + end - start]


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Read the cache slots of `req_to_token[row, start:end]` into `out_cache_loc`.

    Arguments as for `assign_req_to_token_pool_cpu`, but `out_cache_loc` is changed.

    Raises:
        RuntimeError: a request would read past P.

    Called from: kernels/ops/speculative/cache_locs.py:481 (slots to verify, NGRAM and DFLASH)
    and srt/speculative/spec_utils.py:723 (slots that accepted tokens move to, NGRAM).
    """
    for row, start, end, taken in _spans(req_pool_indices, start_offset, end_offset):
        out_cache_loc[taken : taken + end - start] = req_to_token[row, start:end]


def _spans(rows: Tensor, starts: Tensor, ends: Tensor) -> Iterator[tuple[int, int, int, int]]:
    """Yield row, start, end and the number of entries before it, for each request."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield row, start, end, taken
        taken += end - start


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Derive positions and child and sibling links of each tree from its mask.

    Args:
        tree_mask: R × N × N bool in any shape; `[r, i, j]` if node j is i or an ancestor of i.
            Parents come before their children.
        verified_seq_len: `[R]`, tokens before the tree.
        positions: R × N in any shape, changed: tokens before the tree + depth.
        retrive_index: `[R, N]`, changed: number of the node in the batch.
        retrive_next_token: `[R, N]`, changed: first child, or NO_NODE.
        retrive_next_sibling: `[R, N]`, changed: next child of the same parent, or NO_NODE.
        batch_size: R.
        draft_token_num: N.

    Called from: srt/speculative/ngram_worker.py:319.
    """
    ancestors = tree_mask.view(batch_size, draft_token_num, draft_token_num).bool().tril(-1)
    order = torch.arange(draft_token_num)
    parent = (ancestors * order).argmax(-1).masked_fill(~ancestors.any(-1), NO_NODE)  # [R, N]
    is_child = parent[:, None, :] == order[:, None]  # [R, N, N]: j is a child of i
    same_parent = parent[:, None, :] == parent[:, :, None]
    is_later_sibling = same_parent & (parent[:, :, None] != NO_NODE) & (order > order[:, None])

    depth = ancestors.sum(-1)
    positions.copy_((verified_seq_len[:, None] + depth).view_as(positions))
    retrive_index.copy_(torch.arange(batch_size * draft_token_num).view_as(retrive_index))
    retrive_next_token.copy_(_first_true(is_child))
    retrive_next_sibling.copy_(_first_true(is_later_sibling))


def _first_true(mask: Tensor) -> Tensor:
    """Index of the first True along the last axis, NO_NODE where there is none."""
    return mask.int().argmax(-1).masked_fill(~mask.any(-1), NO_NODE)


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Accept, in each tree, the path of tokens that the target itself would have chosen.

    Args:
        predicts: `[≥ R × N]`, changed: the target's token after each accepted node.
        accept_index: `[R, A]`, changed: accepted nodes, root first; the rest stays as it was.
        accept_token_num: `[R]`, changed: accepted nodes, root not counted.
        candidates: `[R, N]`, drafted tokens.
        retrive_index: `[R, N]`, number of the node in the batch.
        retrive_next_token: `[R, N]`, first child, or NO_NODE.
        retrive_next_sibling: `[R, N]`, next sibling, or NO_NODE.
        target_predict: R × N in any shape, the target's most probable token after each node.

    Called from: srt/speculative/eagle_utils.py:398 (NGRAM; DFLASH compares its chain itself).
    """
    wanted = target_predict.flatten()
    numbers, tokens = retrive_index.tolist(), candidates.tolist()
    children, siblings = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    for r in range(len(tokens)):
        node, accepted = 0, [numbers[r][0]]
        while len(accepted) < accept_index.shape[1]:
            node = children[r][node]
            while node != NO_NODE and tokens[r][node] != wanted[accepted[-1]]:
                node = siblings[r][node]
            if node == NO_NODE:
                break
            accepted.append(numbers[r][node])
        path = torch.tensor(accepted)
        accept_index[r, : len(accepted)] = path
        accept_token_num[r] = len(accepted) - 1
        predicts[path] = wanted[path].to(predicts.dtype)


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor
) -> None:
    """Gather the cache slots of accepted nodes at the front of `accept_out_cache_loc`.

    Args:
        accept_index: nodes, −1 where none; row after row.
        out_cache_loc: `[R × N]`, slot of each node.
        accept_out_cache_loc: changed; entries behind the accepted ones stay as they were.

    Called from: kernels/ops/speculative/eagle.py:80 (NGRAM).
    """
    slots = out_cache_loc[accept_index[accept_index >= 0].long()]
    accept_out_cache_loc[: slots.numel()] = slots


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int
) -> None:
    """Set each request's bonus token: the last of its accepted tokens.

    Args:
        accept_tokens: R × `accept_stride` in any shape.
        accept_lens: `[R]`, bonus token included.
        bonus_tokens: `[R]`, changed.
        accept_stride: entries a request has in `accept_tokens`.

    Called from: kernels/ops/speculative/eagle.py:40 (NGRAM).
    """
    rows = accept_tokens.view(-1, accept_stride)
    bonus_tokens.copy_(rows.gather(1, accept_lens.long()[:, None] - 1)[:, 0])


def copy_all_layer_kv_cache_cpu(
    data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor
) -> None:
    """Copy cache slots `src_loc` to `tgt_loc` in the key and value buffer of every layer.

    Args:
        data_ptrs: `[buffers]`, address of each buffer.
        strides: `[buffers]`, bytes a slot takes in it.
        tgt_loc: `[slots]`; may overlap `src_loc`, all slots are read before one is written.
        src_loc: `[slots]`.

    Called from: kernels/ops/kvcache/cache_move.py:106 (NGRAM: accepted nodes of a tree move
    together).
    """
    sources, targets = src_loc.tolist(), tgt_loc.tolist()
    for address, size_bytes in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        slots = [ctypes.string_at(address + s * size_bytes, size_bytes) for s in sources]
        for target, slot in zip(targets, slots, strict=True):
            ctypes.memmove(address + target * size_bytes, slot, size_bytes)
