"""The torch stand-ins of `sgl_kernel`'s operations; needs torch, not SGLang."""

import random
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="the stand-ins are torch code")

from sglang_cpu_check import kernels  # noqa: E402 - after the check for torch
from sglang_cpu_check.kernels import NO_NODE  # noqa: E402

SEEDS = range(50)


def random_parents(rng: random.Random, nodes: int) -> list[int]:
    """Parents of a random tree, each before its children; node 0 is the root."""
    return [NO_NODE] + [rng.randrange(i) for i in range(1, nodes)]


def path_to(parents: list[int], node: int) -> list[int]:
    """Nodes from the root down to `node`."""
    path = [node]
    while parents[path[0]] != NO_NODE:
        path.insert(0, parents[path[0]])
    return path


def mask_of(parents: list[int]) -> "torch.Tensor":
    """`[N, N]` bool: node j is i or an ancestor of i."""
    mask = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for node in range(len(parents)):
        mask[node, path_to(parents, node)] = True
    return mask


def links(trees: list[list[int]], lengths: list[int]) -> "tuple[torch.Tensor, ...]":
    """Positions, numbers, first children and next siblings that the stand-in derives."""
    shape = (len(trees), len(trees[0]))
    positions = torch.full((shape[0] * shape[1],), -7)
    index, child, sibling = (torch.full(shape, -7) for _ in range(3))
    mask = torch.stack([mask_of(tree) for tree in trees]).flatten()
    kernels.reconstruct_indices_from_tree_mask(
        mask, torch.tensor(lengths), positions, index, child, sibling, *shape
    )
    return positions.view(shape), index, child, sibling


def test_slots_are_written_at_each_requests_own_span() -> None:
    """Slots of all requests stand one after the other; each request takes as many as it needs."""
    table = torch.zeros(3, 6, dtype=torch.int32)
    slots = torch.tensor([10, 11, 12])
    # request 0 (row 2) takes positions 1, 2 and so slots 10, 11; request 1 (row 0) position 4
    kernels.assign_req_to_token_pool_cpu(
        torch.tensor([2, 0]), table, torch.tensor([1, 4]), torch.tensor([3, 5]), slots, 6
    )
    assert table.tolist() == [[0, 0, 0, 0, 12, 0], [0] * 6, [0, 10, 11, 0, 0, 0]]


def test_slots_are_read_back_in_the_order_of_the_requests() -> None:
    """Reading is the inverse of writing; what lies behind the last span is not touched."""
    table = torch.arange(18, dtype=torch.int32).view(3, 6)
    slots = torch.full((4,), -1)
    kernels.assign_extend_cache_locs_cpu(
        torch.tensor([2, 0]), table, torch.tensor([1, 4]), torch.tensor([3, 5]), slots, 6
    )
    assert slots.tolist() == [13, 14, 4, -1]


@pytest.mark.parametrize(
    "kernel", [kernels.assign_req_to_token_pool_cpu, kernels.assign_extend_cache_locs_cpu]
)
def test_a_span_past_the_end_of_a_row_is_an_error(kernel: object) -> None:
    """A request that outgrows its row stops the server; it never uses its neighbour's slots."""
    table = torch.zeros(2, 4, dtype=torch.int32)
    with pytest.raises(RuntimeError):
        kernel(torch.tensor([0]), table, torch.tensor([2]), torch.tensor([6]), torch.arange(4), 4)


def test_links_of_a_small_tree() -> None:
    """Root 0 with children 1 and 2; 3 below 1; 4 below 2: links by hand."""
    positions, index, child, sibling = links([[NO_NODE, 0, 0, 1, 2]], [7])
    assert positions.tolist() == [[7, 8, 8, 9, 9]]
    assert index.tolist() == [[0, 1, 2, 3, 4]]
    assert child.tolist() == [[1, 3, 4, NO_NODE, NO_NODE]]
    assert sibling.tolist() == [[NO_NODE, 2, NO_NODE, NO_NODE, NO_NODE]]


def test_nodes_without_a_parent_are_nobodys_siblings() -> None:
    """A node that sees only itself belongs to no tree, and no link leads to it."""
    positions, _, child, sibling = links([[NO_NODE, 0, NO_NODE, NO_NODE]], [7])
    assert positions.tolist() == [[7, 8, 7, 7]]
    assert child.tolist() == [[1, NO_NODE, NO_NODE, NO_NODE]]
    assert sibling.tolist() == [[NO_NODE] * 4]


@pytest.mark.parametrize("seed", SEEDS)
def test_links_of_random_trees(seed: int) -> None:
    """Links and positions of two trees in a batch agree with their lists of parents."""
    rng = random.Random(seed)
    trees = [random_parents(rng, 9) for _ in range(2)]
    positions, index, child, sibling = links(trees, [5, 30])
    for r, (parents, length) in enumerate(zip(trees, [5, 30], strict=True)):
        for node in range(9):
            children = [i for i in range(9) if parents[i] == node]
            younger = [i for i in range(node + 1, 9) if node and parents[i] == parents[node]]
            assert positions[r, node] == length + len(path_to(parents, node)) - 1
            assert index[r, node] == 9 * r + node
            assert child[r, node] == min(children, default=NO_NODE)
            assert sibling[r, node] == min(younger, default=NO_NODE)


def verified(
    trees: list[list[int]], tokens: list[list[int]], wanted: list[int], width: int
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Predicted tokens, accepted nodes and accepted drafts of a batch of trees."""
    _, index, child, sibling = links(trees, [0] * len(trees))
    predicts = torch.full((len(wanted),), -7, dtype=torch.int32)
    accepted = torch.full((len(trees), width), -1, dtype=torch.int32)
    drafts = torch.zeros(len(trees), dtype=torch.int32)
    kernels.verify_tree_greedy_cpu(
        predicts, accepted, drafts, torch.tensor(tokens), index, child, sibling,
        torch.tensor(wanted),
    )  # fmt: skip
    return predicts, accepted, drafts


def test_verification_takes_the_second_sibling_if_the_target_wants_it() -> None:
    """The walk goes over siblings, then down; the last accepted node gives the bonus token."""
    tree = [NO_NODE, 0, 0, 2]
    # after the root the target wants 22 (node 2), after node 2 it wants 33 (node 3), then 44
    predicts, accepted, drafts = verified([tree], [[1, 11, 22, 33]], [22, 0, 33, 44], width=4)
    assert accepted.tolist() == [[0, 2, 3, -1]]
    assert drafts.tolist() == [2]
    assert predicts.tolist() == [22, -7, 33, 44]


def test_verification_stops_at_the_width_of_its_output() -> None:
    """A path longer than the output is cut; the token after the cut is the bonus token."""
    predicts, accepted, drafts = verified([[NO_NODE, 0, 1]], [[1, 2, 3]], [2, 3, 4], width=2)
    assert accepted.tolist() == [[0, 1]]
    assert drafts.tolist() == [1]
    assert predicts.tolist() == [2, 3, -7]


@pytest.mark.parametrize("seed", SEEDS)
def test_verification_of_random_trees(seed: int) -> None:
    """Accepted is the longest path from the root whose every token the target wanted."""
    rng = random.Random(seed)
    trees = [random_parents(rng, 8) for _ in range(3)]
    tokens = []
    for parents in trees:  # siblings differ, so at most one path fits
        tokens.append([sum(p == parents[i] for p in parents[:i]) for i in range(8)])
    wanted = [rng.randrange(3) for _ in range(24)]
    _, accepted, drafts = verified(trees, tokens, wanted, width=9)
    for r, parents in enumerate(trees):
        paths = [path_to(parents, node) for node in range(8)]
        fitting = [
            path
            for path in paths
            if all(tokens[r][b] == wanted[8 * r + a] for a, b in pairwise(path))
        ]
        longest = max(fitting, key=len)
        assert drafts[r] == len(longest) - 1
        assert accepted[r].tolist() == [8 * r + n for n in longest] + [-1] * (9 - len(longest))


def test_slots_of_accepted_nodes_move_to_the_front() -> None:
    """Missing nodes (−1) leave no gaps, and the rest of the output keeps its padding."""
    out = torch.zeros(6, dtype=torch.int64)
    nodes = torch.tensor([[0, 2, -1], [4, -1, -1]], dtype=torch.int32)
    kernels.fill_accept_out_cache_loc_cpu(nodes, torch.arange(100, 106), out)
    assert out.tolist() == [100, 102, 104, 0, 0, 0]


def test_the_bonus_token_is_the_last_accepted_one() -> None:
    """Two requests of stride 3 that accepted 2 and 1 tokens."""
    bonus = torch.zeros(2, dtype=torch.int64)
    tokens = torch.tensor([5, 6, 0, 7, 0, 0], dtype=torch.int32)
    kernels.fill_bonus_tokens_cpu(tokens, torch.tensor([2, 1], dtype=torch.int32), bonus, 3)
    assert bonus.tolist() == [6, 7]


def test_the_cache_is_copied_as_if_all_were_read_first() -> None:
    """Overlapping source and target slots in two buffers of different width."""
    wide = torch.arange(12, dtype=torch.bfloat16).view(4, 3)
    narrow = torch.arange(4, dtype=torch.float32).view(4, 1)
    buffers = [wide, narrow]
    expected = [buffer[[0, 0, 1, 3]].tolist() for buffer in buffers]
    # 0 → 1 and 1 → 2: slot 1 must be read before it is overwritten
    kernels.copy_all_layer_kv_cache_cpu(
        torch.tensor([b.data_ptr() for b in buffers]),
        torch.tensor([b.stride(0) * b.element_size() for b in buffers]),
        torch.tensor([1, 2]),
        torch.tensor([0, 1]),
    )
    assert [buffer.tolist() for buffer in buffers] == expected
