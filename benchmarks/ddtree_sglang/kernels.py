"""The kernels on this GPU: equal to their definitions in torch, and how long each takes.

Prints one JSON object; `gpu_check.py` runs it in a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from sglang.kernels.ops.kvcache.cache_move import copy_all_layer_kv_cache_func

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
from ddtree_sglang import buffers, candidates, candidates_kernel, move_kernel, tree, tree_kernel

TREE_SIZES = (
    (1, 16, 8),
    (8, 9, 4),
    (32, 16, 8),
    (1, 65, 8),
    (48, 65, 8),
    (32, 33, 1),
    (1, 256, 16),
)
"""Requests, nodes with the root, candidates a depth."""
SLOT_BYTES = 384
"""Of one layer's keys: SmolLM2-135M has 3 heads of 64 in bf16."""
Move = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int, int, object], None]
HEAD_SIZES = ((15, 49152), (120, 49152), (15, 151936), (480, 151936))
"""Rows and vocabulary; 15 rows a request."""


def time_us(call: Callable[[], object], repeats: int = 200) -> float:
    """Microseconds of device time a call, launched from a CUDA graph so that the host is out."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's own
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    graph.replay()
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / repeats


def check_trees(requests: int, width: int, topk: int) -> tuple[int, float]:
    """Differences of the tree kernel from its definition, and its microseconds."""
    log_probs = torch.randn(requests, 15, topk, device="cuda").mul(3).log_softmax(-1)
    log_probs = log_probs.mul(4).round().div(4).sort(-1, descending=True).values  # with ties
    tokens = torch.randint(0, 50000, log_probs.shape, device="cuda")
    bonus = torch.randint(0, 50000, (requests,), device="cuda")
    prefix = torch.randint(1, 5000, (requests,), device="cuda")
    cells = int((width * (prefix + width)).sum())
    mask, wanted_mask = (torch.zeros(cells, dtype=torch.uint8, device="cuda") for _ in range(2))
    step = buffers.StepBuffers(requests, width, 15, topk, 15, mask.device).of(requests)
    wanted = tree.grow_trees(log_probs, tokens, bonus, width)
    tree.write_full_mask(tree.ancestor_mask(wanted), prefix, wanted_mask)

    def grow() -> None:
        tree_kernel.grow_trees_on_gpu(log_probs, tokens, bonus, prefix, mask, step, full_mask=True)

    grow()
    fields = ("tokens", "parents", "depths", "ranks", "scores", "children", "siblings")
    pairs = [(getattr(step.trees, name), getattr(wanted, name)) for name in fields]
    pairs += [(mask, wanted_mask), (step.positions, prefix[:, None] + wanted.depths)]
    pairs += [(step.counts, tree.count_nodes(wanted, 15))]
    return sum(not torch.equal(x, y) for x, y in pairs), time_us(grow)


def check_candidates(rows: int, vocabulary: int) -> tuple[int, float, float]:
    """Differences of the candidate kernel from its definition, its microseconds, and torch's."""
    logits = torch.randn(rows, vocabulary, device="cuda").bfloat16()
    log_probs = torch.empty(rows, 8, device="cuda")
    ids = torch.empty(rows, 8, dtype=torch.int64, device="cuda")

    def rank() -> None:
        candidates_kernel.top_candidates_on_gpu(logits, log_probs, ids)

    def rank_by_torch() -> None:
        logits.topk(8)
        logits.float().logsumexp(-1)

    rank()
    wanted, wanted_ids = candidates.top_candidates(logits, 8)
    wrong = int(not torch.equal(ids, wanted_ids))
    wrong += not torch.allclose(log_probs, wanted, atol=1e-4)
    return wrong, time_us(rank, 50), time_us(rank_by_torch, 50)


def check_moves(move: Move, requests: int) -> tuple[int, float]:
    """Entries that a move of overlapping slots has put wrong, of 200 moves, and microseconds."""
    caches = [torch.randint(0, 256, (4096, SLOT_BYTES), device="cuda") for _ in range(60)]
    caches = [cache.to(torch.uint8) for cache in caches]
    addresses = torch.tensor([cache.data_ptr() for cache in caches], device="cuda")
    strides = torch.full((len(caches),), SLOT_BYTES, dtype=torch.int64, device="cuda")
    lanes = 1 << (requests * 15 - 1).bit_length()
    tiles = {"byte_tiles": SLOT_BYTES // 128, "bytes_per_tile": 128, "num_warps": 4}
    wrong = 0
    for _ in range(200):
        # a path of 15 nodes of a tree of 64: each goes to the slot of its depth
        nodes = torch.rand(requests, 64, device="cuda").topk(15).indices.sort(1).values + 1
        first = torch.randperm(60, device="cuda")[:requests, None] * 65
        sources = (first + nodes).flatten()
        targets = (first + torch.arange(1, 16, device="cuda")).flatten()
        wanted = caches[0].clone(), caches[-1].clone()
        for cache in wanted:
            cache[targets] = cache[sources]
        move(addresses, strides, targets, sources, len(targets), lanes, tiles)
        found = (caches[0], caches[-1])
        wrong += sum(int((a != b).any(1).sum()) for a, b in zip(found, wanted, strict=True))
    us = time_us(lambda: move(addresses, strides, targets, sources, len(targets), lanes, tiles))
    return wrong, us


def check_kernels() -> dict[str, object]:
    """Differences of all kernels from their definitions in torch, and times."""
    torch.manual_seed(0)
    found: dict[str, object] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    wrong = 0
    for requests, width, topk in TREE_SIZES:
        differences, us = check_trees(requests, width, topk)
        wrong += differences
        found[f"tree_us R={requests} B={width - 1} K={topk}"] = us
    for rows, vocabulary in HEAD_SIZES:
        differences, us, torch_us = check_candidates(rows, vocabulary)
        wrong += differences
        found[f"candidates_us rows={rows} V={vocabulary}"] = us
        found[f"torch_topk_us rows={rows} V={vocabulary}"] = torch_us
    for requests in (1, 8):
        differences, us = check_moves(move_kernel.move_on_gpu, requests)
        wrong += differences
        found[f"move_us R={requests}"] = us
        stock_wrong, stock_us = check_moves(copy_all_layer_kv_cache_func, requests)
        found[f"stock_move_us R={requests}"] = stock_us
        found[f"stock_move_wrong R={requests}"] = stock_wrong
    found["wrong"] = wrong
    return found


if __name__ == "__main__":
    print(json.dumps(check_kernels()))
