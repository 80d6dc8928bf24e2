import pytest

torch = pytest.importorskip("torch", reason="trees are tensors")

from hypothesis import given, settings  # noqa: E402 - after the check for torch
from hypothesis import strategies as st  # noqa: E402

from ddtree.tree import Candidate, DraftTree, grow_tree  # noqa: E402
from ddtree_sglang.tree import (  # noqa: E402
    NONE,
    TreeBatch,
    ancestor_mask,
    count_nodes,
    grow_trees,
    write_full_mask,
)

INF = float("inf")
BONUS = 9

# Coarse values make ties, which are where an order can go wrong.
log_prob = st.sampled_from([0.0, -0.25, -0.5, -1.0, -3.0, -INF]) | st.floats(-20, 0, width=32)
blocks = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: st.lists(
        st.lists(
            st.lists(log_prob, min_size=shape[2], max_size=shape[2]),
            min_size=shape[1],
            max_size=shape[1],
        ),
        min_size=shape[0],
        max_size=shape[0],
    )
)


def candidates(rows: list[list[list[float]]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probabilities in descending order, a different token for each, and the bonus tokens."""
    log_probs = torch.tensor(rows, dtype=torch.float32).sort(-1, descending=True).values
    tokens = torch.arange(log_probs.numel()).view(log_probs.shape) + 100
    return log_probs, tokens, torch.full((len(rows),), BONUS)


def reference(log_probs: torch.Tensor, tokens: torch.Tensor, width: int) -> DraftTree:
    """The tree of one request as the reference engine grows it."""
    ranked = [
        [Candidate(p, t) for p, t in zip(ps, ts, strict=True) if p > -INF]
        for ps, ts in zip(log_probs.tolist(), tokens.tolist(), strict=True)
    ]
    return grow_tree(ranked, BONUS, width - 1)


def check_against_reference(
    trees: TreeBatch, log_probs: torch.Tensor, tokens: torch.Tensor
) -> None:
    """Every tree is the reference's, and what is left of the width is unused."""
    mask = ancestor_mask(trees)
    for r in range(len(log_probs)):
        wanted = reference(log_probs[r], tokens[r], trees.tokens.shape[1])
        n = len(wanted)
        assert torch.equal(trees.tokens[r, :n], wanted.tokens)
        assert torch.equal(trees.parents[r, :n].long(), wanted.parents)
        assert torch.equal(trees.depths[r, :n].long(), wanted.depths)
        assert torch.equal(trees.ranks[r, :n].long(), wanted.ranks)
        assert torch.equal(trees.scores[r, :n], wanted.scores)
        assert torch.equal(mask[r, :n, :n], wanted.mask)
        assert trees.parents[r, n:].eq(NONE).all()
        assert trees.scores[r, n:].eq(-INF).all()
        assert torch.equal(mask[r, n:], torch.eye(len(mask[r]), dtype=torch.bool)[n:])


@settings(deadline=None, max_examples=150)
@given(rows=blocks, width=st.integers(1, 40))
def test_trees_are_those_of_the_reference_engine(rows: list[list[list[float]]], width: int) -> None:
    """Node for node, ties and impossible tokens included."""
    log_probs, tokens, bonus = candidates(rows)
    check_against_reference(grow_trees(log_probs, tokens, bonus, width), log_probs, tokens)


@settings(deadline=None, max_examples=100)
@given(rows=blocks, width=st.integers(1, 40))
def test_links_lead_to_each_node_once(rows: list[list[list[float]]], width: int) -> None:
    """First child and next sibling list a node's children in rank order, at rising numbers.

    Recurrent layers derive parents in one ascending pass and need the latter.
    """
    log_probs, tokens, bonus = candidates(rows)
    trees = grow_trees(log_probs, tokens, bonus, width)
    for r in range(len(rows)):
        parents, ranks = trees.parents[r].tolist(), trees.ranks[r].tolist()
        for node in range(width):
            listed, at = [], int(trees.children[r, node])
            while at != NONE:
                listed.append(at)
                at = int(trees.siblings[r, at])
            assert listed == [i for i in range(1, width) if parents[i] == node]
            assert [ranks[i] for i in listed] == list(range(len(listed)))


def test_worked_example() -> None:
    """Best-first takes a sibling before a child when the sibling is more probable."""
    # depth 1: a 0.6, b 0.4; depth 2: c 0.5, d 0.5
    # prefixes: a 0.6, b 0.4, ac 0.30, ad 0.30, bc 0.20, bd 0.20; 5 of them fit
    log_probs = torch.tensor([[[0.6, 0.4], [0.5, 0.5]]]).log()
    trees = grow_trees(log_probs, torch.tensor([[[1, 2], [3, 4]]]), torch.tensor([BONUS]), 6)
    assert trees.tokens.tolist() == [[BONUS, 1, 2, 3, 4, 3]]
    assert trees.parents.tolist() == [[-1, 0, 0, 1, 1, 2]]
    assert trees.depths.tolist() == [[0, 1, 1, 2, 2, 2]]
    assert trees.ranks.tolist() == [[-1, 0, 1, 0, 1, 0]]
    assert trees.children.tolist() == [[1, 3, 5, -1, -1, -1]]
    assert trees.siblings.tolist() == [[-1, 2, -1, 4, -1, -1]]
    assert trees.scores.exp().tolist() == [pytest.approx([1, 0.6, 0.4, 0.3, 0.3, 0.2])]
    # 2 nodes at depth 1, 3 at depth 2, which is the deepest
    assert count_nodes(trees, 2).tolist() == [[2, 3, 2]]


def test_the_tree_of_the_documentation() -> None:
    """docs/ddtree.md grows this one by hand: a, ac, b, ace, bc."""
    log_probs = torch.tensor([[[0.6, 0.4], [0.7, 0.3], [0.9, 0.1]]]).log()
    a, b, c, d, e, f = range(1, 7)
    tokens = torch.tensor([[[a, b], [c, d], [e, f]]])
    trees = grow_trees(log_probs, tokens, torch.tensor([BONUS]), 6)
    assert trees.tokens.tolist() == [[BONUS, a, c, b, e, c]]
    assert trees.parents.tolist() == [[NONE, 0, 1, 0, 2, 3]]
    assert trees.depths.tolist() == [[0, 1, 2, 1, 3, 2]]
    assert trees.children.tolist() == [[1, 2, 4, 5, NONE, NONE]]
    assert trees.siblings.tolist() == [[NONE, 3, NONE, NONE, NONE, NONE]]


def test_a_chain_shorter_than_the_width_leaves_unused_nodes() -> None:
    """They carry the root's token and depth, and nothing links to them."""
    trees = grow_trees(
        torch.tensor([[[-0.1], [-0.2]]]), torch.tensor([[[5], [6]]]), torch.tensor([BONUS]), 5
    )
    assert trees.tokens.tolist() == [[BONUS, 5, 6, BONUS, BONUS]]
    assert trees.depths.tolist() == [[0, 1, 2, 0, 0]]
    assert trees.children.tolist() == [[1, 2, -1, -1, -1]]
    assert count_nodes(trees, 2).tolist() == [[1, 1, 2]]


def test_the_mask_is_written_between_the_prefixes() -> None:
    """Rows hold prefix and tree, requests stand back to back; other cells keep their value."""
    # widths: 2 × (1 + 2) = 6 cells, then 2 × (3 + 2) = 10 cells
    mask = torch.tensor([[[1, 0], [1, 1]], [[1, 0], [0, 1]]], dtype=torch.bool)
    out = torch.full((17,), 7, dtype=torch.uint8)
    write_full_mask(mask, torch.tensor([1, 3]), out)
    assert out.tolist() == [7, 1, 0, 7, 1, 1, 7, 7, 7, 1, 0, 7, 7, 7, 0, 1, 7]


@pytest.mark.parametrize(
    ("log_probs", "tokens", "bonus"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 3).long(), torch.zeros(2)),
        (torch.zeros(1, 2, 3).double(), torch.zeros(1, 2, 3).long(), torch.zeros(1)),
        (torch.zeros(1, 2, 3), torch.zeros(1, 3, 2).long(), torch.zeros(1)),
        (torch.zeros(1, 2, 3), torch.zeros(1, 2, 3).long(), torch.zeros(2)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    log_probs: torch.Tensor, tokens: torch.Tensor, bonus: torch.Tensor
) -> None:
    """The message shows all shapes."""
    with pytest.raises(ValueError, match=r"candidates must be \[R, L, K\]"):
        grow_trees(log_probs, tokens, bonus, 4)
