import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree.tree import NO_PARENT, NO_RANK, DraftTree, build_tree, rank_candidates, spine_nodes

ROOT_TOKEN = 9
INF = math.inf


def log_of(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows).log()


def prefixes(tree: DraftTree) -> list[tuple[int, ...]]:
    """Token path of every node besides the root, in node order."""
    paths: list[tuple[int, ...]] = [()]
    for parent, token in zip(tree.parents.tolist()[1:], tree.tokens.tolist()[1:], strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]


def best_prefixes(log_probs: torch.Tensor, budget: int, topk: int) -> list[tuple[int, ...]]:
    """The definition, by listing every prefix: sorted by score, depth, ranks."""
    rows = log_probs.tolist()
    ranked = [[t for _, t in sorted((-p, t) for t, p in enumerate(row))][:topk] for row in rows]
    found = []
    for depth in range(1, len(rows) + 1):
        for ranks in itertools.product(range(len(ranked[0])), repeat=depth):
            score = np.float32(0)
            for d, rank in enumerate(ranks):
                score += np.float32(rows[d][ranked[d][rank]])
            if score > -INF:
                path = tuple(ranked[d][rank] for d, rank in enumerate(ranks))
                found.append((-score, depth, ranks, path))
    return [path for *_, path in sorted(found)[:budget]]


# Coarse values make ties, which are where an order can go wrong.
coarse = st.sampled_from([0.0, -0.25, -0.5, -1.0, -3.0, -INF])
fine = st.floats(-20, 0, width=32)
tables = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: st.lists(
        st.lists(coarse | fine, min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)


@settings(deadline=None, max_examples=300)
@given(rows=tables, budget=st.integers(0, 40), topk=st.integers(1, 6))
def test_tree_is_the_most_probable_prefixes_in_order(
    rows: list[list[float]], budget: int, topk: int
) -> None:
    """The nodes are the `budget` best of all prefixes, ties by depth, then rank path."""
    log_probs = torch.tensor(rows, dtype=torch.float32)
    tree = build_tree(log_probs, ROOT_TOKEN, budget, topk)
    assert prefixes(tree) == best_prefixes(log_probs, budget, topk)


@settings(deadline=None, max_examples=100)
@given(rows=tables, budget=st.integers(0, 40), topk=st.integers(1, 6))
def test_parents_come_first_and_the_mask_is_ancestry(
    rows: list[list[float]], budget: int, topk: int
) -> None:
    """Each node sees itself and its ancestors, nothing else; its depth is their number."""
    tree = build_tree(torch.tensor(rows, dtype=torch.float32), ROOT_TOKEN, budget, topk)
    parents, depths = tree.parents.tolist(), tree.depths.tolist()
    assert parents[0] == NO_PARENT
    assert depths[0] == 0
    for node in range(len(tree)):
        seen, at = set(), node
        while at != NO_PARENT:
            assert parents[at] < at
            seen.add(at)
            at = parents[at]
        assert set(tree.mask[node].nonzero().flatten().tolist()) == seen
        assert depths[node] == len(seen) - 1


def test_worked_example() -> None:
    """Best-first takes a sibling before a child when the sibling is more probable."""
    # depth 1: a 0.6, b 0.4; depth 2: c 0.5, d 0.5 (c first by id).
    # prefixes: a 0.6, b 0.4, ac 0.30, ad 0.30, bc 0.20, bd 0.20
    tree = build_tree(log_of([[0.6, 0.4, 0, 0], [0, 0, 0.5, 0.5]]), ROOT_TOKEN, 4, 8)
    assert tree.tokens.tolist() == [ROOT_TOKEN, 0, 1, 2, 3]
    assert tree.parents.tolist() == [NO_PARENT, 0, 0, 1, 1]
    assert tree.depths.tolist() == [0, 1, 1, 2, 2]
    assert tree.ranks.tolist() == [NO_RANK, 0, 1, 0, 1]
    assert tree.scores.exp().tolist() == pytest.approx([1.0, 0.6, 0.4, 0.3, 0.3])


def test_budget_zero_is_the_root_alone() -> None:
    """Nothing is drafted and the mask is one cell."""
    tree = build_tree(log_of([[0.5, 0.5]]), ROOT_TOKEN, 0, 2)
    assert tree.tokens.tolist() == [ROOT_TOKEN]
    assert tree.mask.tolist() == [[True]]


def test_no_depths_is_the_root_alone() -> None:
    """A block of one position drafts nothing, whatever the budget."""
    assert len(build_tree(torch.empty(0, 4), ROOT_TOKEN, 8, 2)) == 1


def test_one_candidate_a_depth_is_the_chain() -> None:
    """Fifteen depths give at most fifteen nodes in a row, though the budget allows more."""
    log_probs = torch.randn(15, 40, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    tree = build_tree(log_probs, ROOT_TOKEN, 64, 1)
    assert tree.tokens.tolist() == [ROOT_TOKEN, *log_probs.argmax(-1).tolist()]
    assert tree.parents.tolist() == list(range(-1, 15))
    assert spine_nodes(tree) == 15


def test_cap_above_the_vocabulary_takes_all_of_it() -> None:
    """With 3 tokens and 2 depths there are 3 + 9 prefixes."""
    tree = build_tree(log_of([[0.5, 0.3, 0.2]] * 2), ROOT_TOKEN, 100, 50)
    assert len(tree) == 1 + 3 + 9


def test_equal_log_probs_rank_by_token_id() -> None:
    """A wide row of equals, where topk alone would leave the choice open, yields the first ids."""
    candidates = rank_candidates(torch.full((1, 4096), -math.log(4096)), 5)
    assert [c.token for c in candidates[0]] == [0, 1, 2, 3, 4]


def test_equals_at_the_last_place_rank_by_token_id() -> None:
    """The best token comes first although its id is larger, then equals by id."""
    candidates = rank_candidates(log_of([[0.2, 0.2, 0.4, 0.2]]), 2)
    assert [c.token for c in candidates[0]] == [2, 0]


def test_impossible_tokens_are_never_nodes() -> None:
    """A depth without any possible token ends every prefix before it."""
    log_probs = torch.tensor([[-0.7, -INF, -0.7], [-INF, -INF, -INF], [-1.0, -1.0, -1.0]])
    tree = build_tree(log_probs, ROOT_TOKEN, 10, 3)
    assert prefixes(tree) == [(0,), (2,)]


def test_spine_counts_rank_zero_paths_only() -> None:
    """A rank-0 child of a rank-1 node is not on the spine."""
    # nodes: a, b, ac, ad, bc, bd; only a and ac have rank path 0…0
    tree = build_tree(log_of([[0.6, 0.4, 0, 0], [0, 0, 0.5, 0.5]]), ROOT_TOKEN, 6, 2)
    assert len(tree) == 7
    assert spine_nodes(tree) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": -1}, "budget must be 0 or more, got -1"),
        ({"topk": 0}, "topk must be 1 or more, got 0"),
        ({"log_probs": torch.zeros(3)}, r"must be \[L, V\] float32, got \[3\]"),
        ({"log_probs": torch.zeros(1, 3).double()}, "float64"),
        ({"log_probs": torch.tensor([[0.0, math.nan]])}, "NaN"),
        ({"log_probs": torch.tensor([[2.0, 1.0]])}, "above 0"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    """The message says what is wrong and what was given."""
    arguments: dict[str, Any] = {
        "log_probs": torch.zeros(1, 3),
        "root": 0,
        "budget": 1,
        "topk": 1,
    } | change
    with pytest.raises(ValueError, match=message):
        build_tree(**arguments)
