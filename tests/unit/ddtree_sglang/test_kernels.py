"""The Triton kernels against their definitions in torch; without a GPU in Triton's interpreter."""

import pytest

torch = pytest.importorskip("torch", reason="the kernels work on tensors")
pytest.importorskip("triton", reason="the kernels are written in Triton")

from ddtree_sglang.buffers import StepBuffers  # noqa: E402 - after the checks above
from ddtree_sglang.candidates import merge_parts, reduce_part, top_candidates  # noqa: E402
from ddtree_sglang.candidates_kernel import (  # noqa: E402
    merge_parts_on_gpu,
    reduce_part_on_gpu,
    top_candidates_on_gpu,
)
from ddtree_sglang.move_kernel import move_on_gpu  # noqa: E402
from ddtree_sglang.path import accept_paths  # noqa: E402
from ddtree_sglang.path_kernel import accept_paths_on_gpu  # noqa: E402
from ddtree_sglang.tree import (  # noqa: E402
    ancestor_mask,
    count_nodes,
    grow_trees,
    write_full_mask,
)
from ddtree_sglang.tree_kernel import grow_trees_on_gpu  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FIELDS = ("tokens", "parents", "depths", "ranks", "scores", "children", "siblings")


def draw(seed: int, shape: tuple[int, int, int], *, ties: bool) -> tuple[torch.Tensor, ...]:
    """Candidates in descending order, tokens, bonus tokens and prefix lengths of a batch."""
    generator = torch.Generator().manual_seed(seed)
    log_probs = -5 * torch.rand(shape, generator=generator)
    if ties:
        coarse = torch.tensor([0.0, -0.25, -0.5, -1.0, -3.0, -torch.inf])
        log_probs = coarse[torch.randint(0, 6, shape, generator=generator)]
    log_probs = log_probs.sort(-1, descending=True).values
    tokens = torch.randint(0, 1000, shape, generator=generator)
    bonus = torch.randint(0, 1000, shape[:1], generator=generator)
    prefix_lens = torch.randint(1, 20, shape[:1], generator=generator)
    return tuple(part.to(DEVICE) for part in (log_probs, tokens, bonus, prefix_lens))


def buffers(requests: int, width: int, levels: int, topk: int) -> StepBuffers:
    """Space for trees as deep as they can be."""
    depth = min(levels, width - 1)
    return StepBuffers(requests, width, levels, topk, depth, torch.device(DEVICE))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    ("shape", "width"),
    [((1, 1, 1), 2), ((3, 5, 4), 9), ((2, 15, 8), 16), ((1, 15, 8), 33), ((2, 7, 1), 17)],
)
def test_the_tree_kernel_does_what_its_definition_does(
    shape: tuple[int, int, int], width: int, ties: bool
) -> None:
    """Trees, positions, counts and the mask's cells; no other cell of the mask is touched."""
    log_probs, tokens, bonus, prefix_lens = draw(width, shape, ties=ties)
    wanted = grow_trees(log_probs, tokens, bonus, width)
    mask = torch.full((int((width * (prefix_lens + width)).sum()) + 3,), 7, dtype=torch.uint8)
    wanted_mask, mask = mask.to(DEVICE), mask.to(DEVICE).clone()
    write_full_mask(ancestor_mask(wanted), prefix_lens, wanted_mask)
    requests, levels, topk = shape
    step = buffers(requests + 1, width, levels, topk).of(requests)
    grow_trees_on_gpu(log_probs, tokens, bonus, prefix_lens, mask, step, full_mask=True)
    for name in FIELDS:
        assert torch.equal(getattr(step.trees, name), getattr(wanted, name)), name
    assert torch.equal(step.positions, prefix_lens[:, None] + wanted.depths)
    assert torch.equal(mask, wanted_mask)
    assert torch.equal(step.counts, count_nodes(wanted, levels))


def test_the_tree_kernel_reads_blocks() -> None:
    """In a graph, the first token and position of a block are bonus token and prefix length."""
    log_probs, tokens, bonus, prefix_lens = draw(2, (2, 4, 3), ties=True)
    ids, positions = (torch.zeros(2, 5, dtype=torch.int64, device=DEVICE) for _ in range(2))
    ids[:, 0], positions[:, 0] = bonus, prefix_lens
    cells = int((6 * (prefix_lens + 6)).sum())
    steps, masks = [], []
    for first in ((bonus, prefix_lens), (ids[:, 0], positions[:, 0])):
        step, mask = buffers(2, 6, 4, 3).of(2), torch.zeros(cells, dtype=torch.uint8)
        masks.append(mask.to(DEVICE))
        grow_trees_on_gpu(log_probs, tokens, *first, masks[-1], step, full_mask=True)
        steps.append(step)
    assert torch.equal(steps[0].trees.tokens, steps[1].trees.tokens)
    assert torch.equal(steps[0].positions, steps[1].positions)
    assert torch.equal(masks[0], masks[1])


def test_the_tree_kernel_writes_masks_without_prefixes() -> None:
    """N × N cells a request, as the CPU's backend reads them."""
    log_probs, tokens, bonus, prefix_lens = draw(1, (2, 4, 3), ties=True)
    mask = torch.empty(2 * 6 * 6, dtype=torch.bool, device=DEVICE)
    step = buffers(2, 6, 4, 3).of(2)
    grow_trees_on_gpu(log_probs, tokens, bonus, prefix_lens, mask, step, full_mask=False)
    assert torch.equal(mask.view(2, 6, 6), ancestor_mask(step.trees))


PATH_FIELDS = ("nodes", "rows", "lens", "sources", "targets")


def test_the_move_kernel_reads_all_before_it_writes() -> None:
    """Slots that are left and slots that are gone to overlap; all others stay as they are."""
    caches = [torch.randn(20, 3, 40, device=DEVICE).bfloat16() for _ in range(4)]
    wanted = [cache.clone() for cache in caches]
    targets = torch.tensor([1, 2, 3, 4, 0, 0, 11, 12], device=DEVICE)
    sources = torch.tensor([1, 3, 4, 9, 0, 0, 12, 15], device=DEVICE)
    for cache in wanted:
        cache[targets] = cache[sources]
    addresses = torch.tensor([cache.data_ptr() for cache in caches], device=DEVICE)
    strides = torch.full((4,), 240, dtype=torch.int64, device=DEVICE)
    tiles = {"byte_tiles": 2, "bytes_per_tile": 128, "num_warps": 4}
    move_on_gpu(addresses, strides, targets, sources, 7, 8, tiles)
    for cache, expected in zip(caches, wanted, strict=True):
        expected[12] = cache[12]  # the eighth move is not asked for
        assert torch.equal(cache, expected)
    assert not torch.equal(caches[0][12], caches[0][15])


@pytest.mark.parametrize("limits", [(99, 99, 99), (1, 3, 6), (4, 2, 1)])
@pytest.mark.parametrize(("shape", "width"), [((3, 5, 4), 20), ((3, 1, 2), 3), ((3, 7, 1), 6)])
def test_the_path_kernel_does_what_its_definition_does(
    shape: tuple[int, int, int], width: int, limits: tuple[int, ...]
) -> None:
    """Every output, for targets that know each tree's deepest path, its last node's, and none."""
    requests, levels, topk = shape
    log_probs, tokens, bonus, prefix_lens = draw(3, shape, ties=False)
    trees = grow_trees(log_probs, tokens, bonus, width)
    predicted = torch.full((requests, width), 5000, device=DEVICE)
    for request, at in enumerate([int(trees.depths[0].argmax()), width - 1, 0]):
        while at > 0:
            above = int(trees.parents[request, at])
            predicted[request, above] = trees.tokens[request, at]
            at = above
    slots = torch.randperm(requests * width).view(requests, width).to(DEVICE) + 1
    most = torch.tensor(limits, dtype=torch.int32, device=DEVICE)
    steps = []
    for accept in (accept_paths, accept_paths_on_gpu):
        step = buffers(requests, width, levels, topk).of(requests)
        step.trees.copy_(trees)
        step.counts.copy_(count_nodes(trees, levels))
        accept(step, predicted, prefix_lens, slots, most)
        steps.append(step)
    wanted, found = steps[0].path, steps[1].path
    for name in PATH_FIELDS:
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name
    assert torch.equal(found.report.flat, wanted.report.flat)
    if min(limits) > levels:
        deepest = [int(trees.depths[0].max()), int(trees.depths[1, -1]), 0]
        assert wanted.lens.tolist() == [depth + 1 for depth in deepest]


@pytest.mark.parametrize(("vocabulary", "topk"), [(5, 5), (4096, 1), (9000, 8)])
@pytest.mark.parametrize("all_equal", [False, True])
def test_the_candidate_kernel_does_what_its_definition_does(
    vocabulary: int, topk: int, all_equal: bool
) -> None:
    """Same tokens; log-probabilities up to the order of one sum of `vocabulary` terms."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(4, vocabulary, generator=generator).bfloat16().to(DEVICE)
    logits[1, 3:] = -torch.inf
    if all_equal:
        logits[:] = 2.0
    wanted, wanted_ids = top_candidates(logits, topk)
    log_probs = torch.empty(4, topk, device=DEVICE)
    ids = torch.empty(4, topk, dtype=torch.int64, device=DEVICE)
    top_candidates_on_gpu(logits, log_probs, ids)
    possible = wanted > -torch.inf
    assert torch.equal(ids[possible], wanted_ids[possible])
    torch.testing.assert_close(log_probs, wanted, atol=5e-6, rtol=1e-6)


@pytest.mark.parametrize(("vocabulary", "topk"), [(5, 5), (9000, 3)])
def test_the_kernel_reduces_a_ranks_part_as_its_definition_does(vocabulary: int, topk: int) -> None:
    """Logits and ids to the bit, the norm up to the order of its sum; merged, the candidates."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(2, 4, vocabulary, generator=generator).bfloat16().to(DEVICE)
    parts = torch.empty(2, 4, 2 * topk + 2, device=DEVICE)
    for rank in range(2):
        reduce_part_on_gpu(logits[rank], rank * vocabulary, parts[rank])
        wanted = reduce_part(logits[rank], topk, rank * vocabulary)
        assert torch.equal(parts[rank, :, :-2].view(torch.int32), wanted[:, :-2].view(torch.int32))
        norm = parts[rank, :, -2] + parts[rank, :, -1].log()
        torch.testing.assert_close(norm, wanted[:, -2], atol=5e-6, rtol=1e-6)
    log_probs = torch.empty(4, topk, device=DEVICE)
    ids = torch.empty(4, topk, dtype=torch.int64, device=DEVICE)
    merge_parts_on_gpu(parts, log_probs, ids)
    wanted_log_probs, wanted_ids = merge_parts(parts)
    assert torch.equal(ids, wanted_ids)
    torch.testing.assert_close(log_probs, wanted_log_probs, atol=5e-6, rtol=1e-6)
