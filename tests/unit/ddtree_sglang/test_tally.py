from types import SimpleNamespace
from typing import Any

from ddtree_sglang.options import TreeOptions
from ddtree_sglang.tally import add_step, add_trace, count_steps, tree_fields

OPTIONS = TreeOptions(budget=4, topk=2)


class Request:
    """What the tally reads and writes of SGLang's request."""

    def __init__(self, *, finished: bool = False, retracted: bool = False) -> None:
        self.spec_cap_lens_histogram: list[int] = []
        self.customized_info: dict[str, list[Any]] | None = None
        self.output_ids = [1]
        self.is_retracted = retracted
        self._finished = finished

    def finished(self) -> bool:
        """As given."""
        return self._finished


class Rows:
    """A tensor's `tolist`, for tests without torch."""

    def __init__(self, *rows: list[int]) -> None:
        self._rows = list(rows)

    def tolist(self) -> list[list[int]]:
        """The rows as given."""
        return self._rows


def test_worked_example() -> None:
    """Two steps of a tree with 3 depths and 2 candidates become the fields of one answer."""
    # step 1: 2 + 1 + 1 nodes, deepest 3, accepted ranks 0 and 1; step 2: 2 + 2, deepest 2, none
    request = Request()
    add_step(request, [2, 1, 1, 3, 1, 1])
    add_step(request, [2, 2, 0, 2, 0, 0])
    meta_info = {
        "spec_cap_lens_histogram": request.spec_cap_lens_histogram,
        "spec_correct_drafts_histogram": [1, 0, 1],  # a step with none, a step with two
    }
    fields = tree_fields(meta_info, OPTIONS)
    assert fields == {
        "ddtree_verify_width": 5,
        "ddtree_nodes_by_depth": [4, 3, 1],
        "ddtree_accepted_by_depth": [1, 1],
        "ddtree_accepted_by_rank": [1, 1],
        "ddtree_spine_nodes": 5,
    }
    assert "spec_cap_lens_histogram" not in meta_info


def test_lists_end_at_their_last_count() -> None:
    """A depth that no tree reached has no entry, as in the reference engine."""
    meta_info = {
        "spec_cap_lens_histogram": [4, 0, 0, 1, 0, 0],
        "spec_correct_drafts_histogram": [1],
    }
    fields = tree_fields(meta_info, OPTIONS)
    assert fields["ddtree_nodes_by_depth"] == [4]
    assert fields["ddtree_accepted_by_depth"] == []
    assert fields["ddtree_accepted_by_rank"] == []


def test_a_request_without_a_verify_step_has_the_width_alone() -> None:
    """Not measured is not zero."""
    assert tree_fields({}, OPTIONS) == {"ddtree_verify_width": 5}


def test_steps_of_finished_and_retracted_requests_are_not_counted() -> None:
    """SGLang does not count those either; the step was already running."""
    requests = [Request(), Request(finished=True), Request(retracted=True)]
    result = SimpleNamespace(tree_counts=Rows([1, 1], [2, 2], [3, 3]), tree_trace=None)
    count_steps([[7], [7], [7]], requests, result)
    assert [r.spec_cap_lens_histogram for r in requests] == [[1, 1], [], []]


def test_results_without_trees_are_left_alone() -> None:
    """Prefills and other algorithms have no counts."""
    request = Request()
    count_steps([[7]], [request], SimpleNamespace(tree_counts=None, tree_trace=None))
    assert request.spec_cap_lens_histogram == []


def test_a_trace_stands_beside_the_first_token_of_its_step() -> None:
    """One entry a token, as SGLang cuts and sends them; unused nodes are left out."""
    request = Request()  # one token so far, from the prefill
    step = ([9, 5, 6, 9], [-1, 0, 0, -1], [0.0, -0.5, -1.0, float("-inf")], [2, -1])
    add_trace(request, step, tokens=2)
    request.output_ids += [6, 8]
    add_trace(request, step, tokens=1)
    assert request.customized_info is not None
    entry = {
        "tokens": [9, 5, 6],
        "parents": [-1, 0, 0],
        "log_probs": [0.0, -0.5, -1.0],
        "path": [0, 2],
    }
    assert request.customized_info["ddtree_trace"] == [None, entry, None, entry]
