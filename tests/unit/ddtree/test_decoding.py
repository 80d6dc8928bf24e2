from collections import Counter
from collections.abc import Callable

import pytest
import torch
from scipy.stats import chi2_contingency  # type: ignore[import-untyped]  # scipy has no types

from ddtree.decoding import Ending, Step, draft, walk
from ddtree.engine import Engine, Sampling
from ddtree.tree import build_tree

Make = Callable[..., Engine]
Run = Callable[..., list[Step]]
PROMPTS = [(0, 5, 7), (3,), (0, 11, 11, 4, 9, 8)]
DRAFTED = [
    ("DFLASH", {}),
    ("DFLASH", {"block_size": 2}),
    ("DFLASH", {"block_size": 1}),
    ("DDTREE", {}),
    ("DDTREE", {"budget": 0}),
    ("DDTREE", {"budget": 3, "topk_cap": 2}),
    ("DDTREE", {"budget": 40, "block_size": 3}),
]


def text(steps: list[Step]) -> list[int]:
    return [token for step in steps for token in step.tokens]


@pytest.mark.parametrize(("algorithm", "options"), DRAFTED)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_is_that_of_plain_decoding(
    make_engine: Make, run: Run, algorithm: str, options: dict[str, int], prompt: tuple[int, ...]
) -> None:
    """Chain and tree of any size change the number of steps, never the text."""
    assert text(run(make_engine(algorithm, **options), prompt)) == text(run(make_engine(), prompt))


@pytest.mark.parametrize(("algorithm", "options"), DRAFTED)
def test_sampled_text_with_a_seed_is_that_of_plain_decoding(
    make_engine: Make, run: Run, algorithm: str, options: dict[str, int]
) -> None:
    """Each token costs one draw however it was drafted, so a seed means the same text."""
    wanted = {"temperature": 1.0, "top_p": 0.95, "top_k": 9, "seed": 7}
    drafted = run(make_engine(algorithm, **options), **wanted)
    assert text(drafted) == text(run(make_engine(), **wanted))


def test_trees_of_this_size_do_accept(make_engine: Make, run: Run) -> None:
    """The tests above are not empty: paths of two and more drafts are accepted and compacted."""
    steps = [s for prompt in PROMPTS for s in run(make_engine("DDTREE", budget=40), prompt)]
    assert max(step.accepted_drafts or 0 for step in steps) >= 2


def test_sampling_keeps_the_distribution(make_engine: Make) -> None:
    """Three tokens after a tree are spread as after plain decoding.

    Two samples of 500 with different seeds, texts seen fewer than 10 times in both together
    pooled; chi-square of homogeneity; fixed seeds, false alarm 1 in 1,000.
    """
    counts = []
    for engine, first in ((make_engine(), 0), (make_engine("DDTREE", budget=8), 10_000)):
        seen: Counter[tuple[int, ...]] = Counter()
        for seed in range(first, first + 500):
            wanted = Sampling(3, temperature=0.7, seed=seed, ignore_eos=True)
            seen[tuple(text(list(engine.generate([0, 5, 7], wanted))))] += 1
        counts.append(seen)
    both = counts[0] + counts[1]
    common = [key for key, n in both.items() if n >= 10]
    table = [[c[key] for key in common] + [500 - sum(c[k] for k in common)] for c in counts]
    assert len(common) >= 5
    assert chi2_contingency(table).pvalue > 1e-3


def test_walk_follows_the_targets_choice() -> None:
    """At each node the target's token is looked up among the node's own children."""
    # depth 1: 0, 1; depth 2: 2, 3 → nodes 0 root, 1 (0), 2 (1), 3 (0,2), 4 (0,3), 5 (1,2), 6 (1,3)
    log_probs = torch.tensor([[0.6, 0.4, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]).log()
    tree = build_tree(log_probs, 9, budget=6, topk=2)
    logits = torch.zeros(7, 4)
    logits[0, 1] = logits[2, 3] = logits[6, 0] = 1.0
    assert walk(tree, logits, lambda row: int(row.argmax())) == ([0, 2, 6], 0)


def test_walk_without_a_matching_child_keeps_the_root() -> None:
    """A token that was drafted only deeper down is not a child of the root."""
    tree = build_tree(torch.tensor([[0.9, 0.1], [0.1, 0.9]]).log(), 9, budget=2, topk=1)
    assert walk(tree, torch.zeros(3, 2), lambda row: 1) == ([0], 1)


def test_counters_of_a_run_add_up(make_engine: Make, run: Run) -> None:
    """Verify steps produce their accepted drafts and a bonus token, cut only at the end."""
    first, *verified = run(make_engine("DDTREE"))
    assert first.accepted_drafts is None
    assert first.tree is None
    for step in verified:
        assert step.accepted_drafts is not None
        assert step.tree is not None
        assert len(step.tree.accepted_ranks) == step.accepted_drafts
        assert list(step.tree.accepted_nodes) == sorted(step.tree.accepted_nodes)
        assert sum(step.tree.nodes_by_depth) == 20
        assert step.drafting_s > 0
        assert step.tree.spine_nodes >= 1
    for step in verified[:-1]:
        assert len(step.tokens) == (step.accepted_drafts or 0) + 1
        assert step.finish_reason is None
    assert verified[-1].finish_reason == "length"


def test_plain_steps_carry_no_draft_counts(make_engine: Make, run: Run) -> None:
    """Not drafted is None, not 0."""
    steps = run(make_engine())
    assert len(steps) == 24
    assert {(step.accepted_drafts, step.tree) for step in steps} == {(None, None)}


@pytest.mark.parametrize("count", range(1, 13))
def test_length_limit_cuts_inside_a_path(make_engine: Make, run: Run, count: int) -> None:
    """Any limit gives exactly that many tokens, the first ones of the longer text."""
    steps = run(make_engine("DDTREE"), max_new_tokens=count)
    assert text(steps) == text(run(make_engine()))[:count]
    assert steps[-1].finish_reason == "length"


@pytest.mark.parametrize("algorithm", ["AR", "DFLASH", "DDTREE"])
def test_stop_token_ends_the_text(make_engine: Make, run: Run, algorithm: str) -> None:
    """Each token of a text in turn as stop token: the text ends with its first appearance."""
    whole = text(run(make_engine()))
    for stop in set(whole):
        steps = run(make_engine(algorithm), stop_token_ids=(stop,), ignore_eos=False)
        ends = {stop, *make_engine().eos_token_ids}
        first = next(i for i, token in enumerate(whole) if token in ends)
        assert text(steps) == whole[: first + 1]
        assert (steps[-1].finish_reason, steps[-1].matched_stop) == ("stop", whole[first])


def ending(**sampling: int | bool | tuple[int, ...]) -> Ending:
    return Ending(Sampling(**({"max_new_tokens": 4} | sampling)), frozenset({2}))  # type: ignore[arg-type]  # mixed keywords


def test_stop_inside_a_path_drops_what_follows() -> None:
    """Tokens that were accepted after the stop token are not part of the text."""
    assert ending().cut([5, 2, 7]) == ((5, 2), "stop", 2)


def test_stop_after_the_limit_does_not_count() -> None:
    """The limit comes first, so the text ends by length."""
    assert ending().cut([5, 5, 5, 5, 2]) == ((5, 5, 5, 5), "length", None)


def test_stop_on_the_last_allowed_token_is_a_stop() -> None:
    """Where both fall on one token the text is complete."""
    assert ending().cut([5, 5, 5, 2]) == ((5, 5, 5, 2), "stop", 2)


def test_limit_counts_over_steps() -> None:
    """Three tokens, then one of two fits."""
    end = ending()
    assert end.cut([5, 6, 7]) == ((5, 6, 7), None, None)
    assert end.cut([8, 9]) == ((8,), "length", None)


def test_ignore_eos_ignores_every_stop_id() -> None:
    """As in SGLang the flag covers the request's own stop ids."""
    assert ending(ignore_eos=True, stop_token_ids=(5,)).cut([5, 2]) == ((5, 2), None, None)


def test_chain_is_the_tree_of_one_candidate(make_engine: Make, run: Run) -> None:
    """A chain of block 6 and a tree of budget 5 with one candidate a depth take equal steps."""
    assert run(make_engine("DFLASH")) == run(make_engine("DDTREE", budget=5, topk_cap=1))


def test_text_may_fill_the_context(make_engine: Make, run: Run) -> None:
    """At the last positions trees get shallower, and the text is still that of plain decoding."""
    prompt = [0, *range(3, 9)] * 8  # 56 of 64 positions
    steps = run(make_engine("DDTREE"), prompt, max_new_tokens=8)
    assert text(steps) == text(run(make_engine(), prompt, max_new_tokens=8))
    for step, produced in zip(steps[1:], range(1, 8), strict=False):
        assert step.tree is not None
        assert 56 + produced + len(step.tree.nodes_by_depth) <= 64


def test_trace_holds_the_tree_and_the_path(make_engine: Make) -> None:
    """The path's tokens are the step's tokens but the last; scores fall along it."""
    engine = make_engine("DDTREE")
    steps = list(engine.generate([0, 5, 7], Sampling(8, ignore_eos=True), trace=True))
    assert steps[0].trace is None
    bonus = steps[0].tokens[-1]
    for step in steps[1:-1]:
        trace = step.trace
        assert trace is not None
        assert trace.tokens[0] == bonus
        assert trace.parents[0] == -1
        assert len(trace.tokens) == len(trace.parents) == len(trace.log_probs) == 21
        assert tuple(trace.tokens[node] for node in trace.path[1:]) == step.tokens[:-1]
        assert sorted(trace.log_probs, reverse=True) == list(trace.log_probs)
        bonus = step.tokens[-1]


def test_each_tree_is_drafted_from_all_accepted_tokens(make_engine: Make) -> None:
    """Trees in the loop are those of a drafter that reads the whole text afresh.

    Text tests cannot see this: a drafter fed the wrong nodes' features only accepts less.
    """
    engine = make_engine("DDTREE", budget=40)
    assert engine.drafter is not None
    known = [0, 5, 7]
    branched = False
    for step in engine.generate(known, Sampling(24, ignore_eos=True), trace=True):
        if step.trace is not None:
            features = engine.target.extend(known[:-1], engine.target.new_cache()).features
            fresh = draft(engine.target, engine.drafter, 6, known[-1], features, [])
            tree = build_tree(fresh, known[-1], 40, 12)
            # Scores in order, not tokens: rounding may swap nodes that are nearly equal.
            assert step.trace.log_probs == pytest.approx(tree.scores.tolist(), abs=1e-4)
            branched |= step.trace.path != tuple(range(len(step.trace.path)))
        known += step.tokens
    assert branched


def test_no_trace_unless_asked(make_engine: Make, run: Run) -> None:
    """Neither trace nor log-probabilities come by default."""
    assert {(s.trace, s.log_probs) for s in run(make_engine("DDTREE"))} == {(None, None)}


def test_log_probs_are_the_targets_own(make_engine: Make) -> None:
    """Tree decoding reports for each token what plain decoding reports."""
    reports = []
    for engine in (make_engine(), make_engine("DDTREE")):
        steps = list(engine.generate([0, 5, 7], Sampling(10, ignore_eos=True), top_logprobs=2))
        reports.append([entry for step in steps for entry in step.log_probs or ()])
    plain, tree = reports
    assert len(plain) == len(tree) == 10
    for one, other in zip(plain, tree, strict=True):
        # greedy: the token is the best; its log-probability was summed in another order
        assert one.log_prob == pytest.approx(one.top[0][1], abs=1e-6)
        assert other.log_prob == pytest.approx(one.log_prob, abs=1e-4)
        assert [token for token, _ in one.top] == [token for token, _ in other.top]


def test_closing_early_leaves_the_engine_usable(make_engine: Make, run: Run) -> None:
    """A request given up after two steps does not change the next one."""
    engine = make_engine("DDTREE")
    before = run(engine)
    steps = engine.generate([3, 4], Sampling(20))
    next(steps)
    next(steps)
    steps.close()  # type: ignore[attr-defined]  # an iterator by contract, a generator in fact
    assert run(engine) == before
