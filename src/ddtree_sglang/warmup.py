"""Compile what steps launch when no graph holds it, so that no request waits for it."""

from __future__ import annotations

import torch

from ddtree_sglang.buffers import StepBuffers
from ddtree_sglang.head import CandidateHead
from ddtree_sglang.path import DUMMY_SLOT
from ddtree_sglang.path_kernel import accept_paths_on_gpu
from ddtree_sglang.tree_kernel import grow_trees_on_gpu


def compile_kernels(head: CandidateHead, buffers: StepBuffers) -> None:
    """Run each kernel once for each size of a batch that it is compiled for."""
    head.log_probs.zero_()
    head.tokens.zero_()
    most, device = buffers.rows, head.tokens.device
    sizes = {min(most, 1 << power) for power in range(most.bit_length() + 1)}
    for requests in sorted(sizes):
        step = buffers.of(requests)
        lens = torch.ones(requests, dtype=torch.int64, device=device)
        cells = requests * buffers.width * (buffers.width + 1)
        mask = torch.empty(cells, dtype=torch.uint8, device=device)
        candidates = head.log_probs[:requests], head.tokens[:requests]
        grow_trees_on_gpu(*candidates, lens, lens, mask, step, full_mask=True)
        slots = torch.full_like(step.positions, DUMMY_SLOT)
        accept_paths_on_gpu(step, slots, lens, slots, lens.int())
