"""Accepted paths on trees that are written out."""

import pytest

torch = pytest.importorskip("torch", reason="trees are tensors")

from ddtree_sglang.buffers import StepBuffers  # noqa: E402 - after the check for torch
from ddtree_sglang.path import DUMMY_SLOT, PathBatch, accept_paths  # noqa: E402
from ddtree_sglang.tree import NONE, count_nodes, grow_trees  # noqa: E402

BONUS = 9
WIDTH, LEVELS, TOPK = 7, 2, 2
PREFIX_LENS = torch.tensor([10, 20])
SLOTS = torch.arange(2 * WIDTH).view(2, WIDTH) + 100


def accepted(predicted: list[list[int]], limits: list[int]) -> PathBatch:
    """Paths in two equal trees: 1, 2 below the root; 3, 4 below each of them.

    Nodes in order: root, 1, 2, 1·3, 1·4, 2·3, 2·4.
    """
    log_probs = torch.tensor([[[0.6, 0.4], [0.5, 0.5]]] * 2).log()
    tokens = torch.tensor([[[1, 2], [3, 4]]] * 2)
    trees = grow_trees(log_probs, tokens, torch.tensor([BONUS, BONUS]), WIDTH)
    step = StepBuffers(2, WIDTH, LEVELS, TOPK, LEVELS, torch.device("cpu")).of(2)
    step.trees.copy_(trees)
    step.counts.copy_(count_nodes(trees, LEVELS))
    accept_paths(step, torch.tensor(predicted), PREFIX_LENS, SLOTS, torch.tensor(limits))
    return step.path


def test_a_path_follows_the_targets_tokens() -> None:
    """Of two nodes with the wanted token the one below the path is taken."""
    # 0: root wants 2, node 2 wants 3, which is node 5; that one wants 77: the bonus token
    # 1: root wants 77, which no node has
    path = accepted([[2, 3, 3, 0, 0, 77, 0], [77, 3, 3, 3, 3, 3, 3]], limits=[3, 3])
    report = path.report
    assert path.nodes.tolist() == [[0, 2, 5], [0, NONE, NONE]]
    assert path.rows.tolist() == [[0, 2, 5], [7, 7, 7]]
    assert path.lens.tolist() == [3, 1]
    assert report.tokens.tolist() == [[2, 3, 77, 0, 0, 0, 0], [77, 0, 0, 0, 0, 0, 0]]
    assert report.bonus.tolist() == [77, 77]
    assert report.new_lens.tolist() == [13, 21]
    assert path.sources.tolist() == [[102, 105], [DUMMY_SLOT, DUMMY_SLOT]]
    assert path.targets.tolist() == [[101, 102], [DUMMY_SLOT, DUMMY_SLOT]]
    # 2 nodes at depth 1, 4 at depth 2, which is the deepest; then accepted ones by rank
    assert report.counts.tolist() == [[2, 4, 2, 1, 1], [2, 4, 2, 0, 0]]
    assert report.lens.tolist() == [3, 1]


def test_a_limit_ends_a_path_before_the_tree_does() -> None:
    """A sampled bonus token may be one of a node: what was sampled there was not accepted."""
    path = accepted([[1, 3, 0, 4, 0, 0, 0], [1, 3, 0, 4, 0, 0, 0]], limits=[2, 3])
    assert path.lens.tolist() == [2, 3]
    assert path.report.tokens[:, :3].tolist() == [[1, 3, 0], [1, 3, 4]]
    assert path.report.bonus.tolist() == [3, 4]


def test_a_limit_of_one_accepts_the_root_alone() -> None:
    """What graphs do while a batch wants something else than the most probable tokens."""
    path = accepted([[2, 3, 3, 0, 0, 77, 0]] * 2, limits=[1, 1])
    assert path.lens.tolist() == [1, 1]
    assert path.targets.eq(DUMMY_SLOT).all()


def test_a_batch_that_fills_a_graph_shares_the_trees_of_a_smaller_one() -> None:
    """And its report has the smaller one's requests in front."""
    buffers = StepBuffers(4, WIDTH, LEVELS, TOPK, LEVELS, torch.device("cpu"))
    small, large = buffers.of(2), buffers.of(4)
    large.trees.tokens[1] = 5
    assert small.trees.tokens[1].eq(5).all()
    copy = large.path.report.like(large.path.report.flat.clone())
    copy.bonus[1] = 7
    assert large.path.report.bonus[1] == 0
    assert buffers.of(2) is small
