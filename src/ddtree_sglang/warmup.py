"""Compile what the steps launch outside of the graphs, so that no request waits for it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ddtree_sglang.buffers import StepBuffers
from ddtree_sglang.head import CandidateHead
from ddtree_sglang.path import DUMMY_SLOT
from ddtree_sglang.path_kernel import accept_paths_on_gpu
from ddtree_sglang.tree_kernel import grow_trees_on_gpu


class Cache(Protocol):
    """SGLang's `KVCache`."""

    def move_kv_cache(self, tgt_loc: Tensor, src_loc: Tensor) -> None:
        """Copy entries of all layers from slots to slots."""


def compile_kernels(head: CandidateHead, buffers: StepBuffers, cache: Cache) -> None:
    """Run each kernel once for each shape of a batch that it is compiled for."""
    head.log_probs.zero_()
    head.tokens.zero_()
    most, device = len(head.tokens), head.tokens.device
    sizes = {min(most, 1 << power) for power in range(most.bit_length() + 1)}
    for requests in sorted(sizes):
        step = buffers.next(requests)
        width = step.positions.shape[1]
        lengths = torch.ones(requests, dtype=torch.int64, device=device)
        mask = torch.empty(requests * width * (width + 1), dtype=torch.uint8, device=device)
        grow_trees_on_gpu(
            head.log_probs[:requests],
            head.tokens[:requests],
            lengths,
            lengths,
            mask,
            step,
            full_mask=True,
        )
        slots = torch.full_like(step.positions, DUMMY_SLOT)
        for limits in (None, lengths.int()):
            accept_paths_on_gpu(step.trees, slots, lengths, slots, limits, step.path)
        cache.move_kv_cache(step.path.targets.flatten(), step.path.sources.flatten())
