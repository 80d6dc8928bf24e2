"""Every tree size starts, and what it answers is what the target would have chosen."""

from pathlib import Path
from typing import Any

import pytest
from real.ddtree_sglang.servers import Running, check_choices, tree_server

pytestmark = [pytest.mark.heavy, pytest.mark.extended]

TOKENS = 48
LEVELS = 15


def check_counts(meta: dict[str, Any], tokens: int, budget: int, topk: int) -> None:
    """Steps, accepted drafts, histogram, tree fields and tokens tell the same story."""
    steps, accepted = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
    histogram = meta["spec_correct_drafts_histogram"]
    assert sum(histogram) == steps
    assert sum(i * n for i, n in enumerate(histogram)) == accepted
    # the prefill gives the first token; what the last step gave past the end is cut
    assert 0 <= 1 + steps + accepted - tokens <= LEVELS
    nodes = meta["ddtree_nodes_by_depth"]
    assert meta["ddtree_verify_width"] == budget + 1
    # one candidate a depth fills the block's depths at most
    assert sum(nodes) == steps * (min(budget, LEVELS) if topk == 1 else budget)
    assert sum(meta["ddtree_accepted_by_depth"]) == accepted
    assert sum(meta["ddtree_accepted_by_rank"]) == accepted
    assert len(meta["ddtree_accepted_by_rank"]) <= topk
    assert len(meta["ddtree_accepted_by_depth"]) <= len(nodes) <= LEVELS
    assert all(a <= n for a, n in zip(meta["ddtree_accepted_by_depth"], nodes, strict=False))
    assert steps <= meta["ddtree_spine_nodes"] <= steps * min(budget, LEVELS)


@pytest.mark.parametrize("topk", [1, 4, 8])
@pytest.mark.parametrize("budget", [8, 15, 16, 32, 64])
def test_every_size_answers_like_plain_decoding(
    budget: int, topk: int, prompts: list[list[int]], plain: Running, logs: Path
) -> None:
    """Also budgets narrower than the block, which once overran their reserve."""
    asked = [prompts[0], prompts[8], prompts[12]]
    with tree_server(logs, budget, topk) as server:
        answers = server.answers(asked, TOKENS, at_once=1)
    for prompt, answer in zip(asked, answers, strict=True):
        ids = answer["output_ids"]
        check_counts(answer["meta_info"], len(ids), budget, topk)
        check_choices(plain, prompt, ids)
    log = (logs / f"tree-b{budget}-k{topk}.log").read_text(encoding="utf-8", errors="replace")
    assert "Failed to" not in log
    assert "Traceback" not in log
