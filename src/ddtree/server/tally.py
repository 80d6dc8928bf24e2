"""Counts of one request's steps, and of all requests since the start or the last flush."""

from dataclasses import dataclass, field

from ddtree.engine import Step, StepTree


def _add_at(counts: list[int], index: int, amount: int = 1) -> None:
    """Add `amount` to `counts[index]`; the list grows with zeros as needed."""
    counts.extend([0] * (index + 1 - len(counts)))
    counts[index] += amount


@dataclass(slots=True)
class Tally:
    """Sums over one request's steps; a verify step is one with drafts to accept."""

    verify_steps: int = 0
    accepted_drafts: int = 0
    """Before any cut by a stop or the length."""
    histogram: list[int] = field(default_factory=list)
    """`histogram[n]`: verify steps that accepted n drafts; ends at the largest n seen."""
    nodes_by_depth: list[int] = field(default_factory=list)
    """`[d]`: drafted nodes at depth d + 1."""
    accepted_by_depth: list[int] = field(default_factory=list)
    """`[d]`: accepted nodes at depth d + 1."""
    accepted_by_rank: list[int] = field(default_factory=list)
    """`[r]`: accepted nodes that were the drafter's candidate r at their depth."""
    accepted_by_node: list[int] = field(default_factory=list)
    """`[n]`: accepted nodes that were the tree's node n + 1 in the order in which it grew."""
    spine_nodes: int = 0
    """Drafted nodes whose rank path is all zeros."""
    drafting_s: float = 0.0
    """Seconds of the verify steps that were drafting."""

    def add(self, step: Step) -> None:
        """Count `step`; prefill and plain steps change nothing."""
        if step.accepted_drafts is None:
            return
        self.verify_steps += 1
        self.accepted_drafts += step.accepted_drafts
        self.drafting_s += step.drafting_s
        _add_at(self.histogram, step.accepted_drafts)
        if step.tree is not None:
            self._add_tree(step.tree, step.accepted_drafts)

    def _add_tree(self, tree: StepTree, accepted: int) -> None:
        for depth, nodes in enumerate(tree.nodes_by_depth):
            _add_at(self.nodes_by_depth, depth, nodes)
        for depth in range(accepted):
            _add_at(self.accepted_by_depth, depth)
        for rank in tree.accepted_ranks:
            _add_at(self.accepted_by_rank, rank)
        for node in tree.accepted_nodes:
            _add_at(self.accepted_by_node, node - 1)
        self.spine_nodes += tree.spine_nodes
