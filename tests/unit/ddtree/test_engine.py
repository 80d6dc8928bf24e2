from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddtree.engine import Engine, EngineSpec, Sampling

Make = Callable[..., Engine]
MakeSpec = Callable[..., EngineSpec]


@pytest.mark.parametrize(
    ("algorithm", "changes", "message"),
    [
        ("MEDUSA", {}, "algorithm must be AR, DFLASH or DDTREE, got 'MEDUSA'"),
        ("AR", {"budget": 3}, "budget has no effect with algorithm AR"),
        ("AR", {"drafter_path": Path("x")}, "drafter_path has no effect with algorithm AR"),
        ("AR", {"block_size": 3}, "block_size has no effect with algorithm AR"),
        ("DFLASH", {"drafter_path": None}, "algorithm DFLASH needs drafter_path"),
        ("DFLASH", {"budget": 3}, "budget has no effect with algorithm DFLASH"),
        ("DFLASH", {"topk_cap": 3}, "topk_cap has no effect with algorithm DFLASH"),
        ("DDTREE", {"drafter_path": None}, "algorithm DDTREE needs drafter_path"),
        ("DDTREE", {"budget": None}, "algorithm DDTREE needs budget"),
        ("DDTREE", {"budget": -1}, "budget must be 0 or more, got -1"),
        ("DDTREE", {"topk_cap": 0}, "topk_cap must be 1 or more, got 0"),
        ("DDTREE", {"block_size": 0}, "block_size must be 1 or more, got 0"),
        ("AR", {"threads": 0}, "threads must be 1 or more, got 0"),
        ("AR", {"context_length": 1}, "context_length must be 2 or more, got 1"),
        ("AR", {"dtype": "int8"}, "dtype must be one of float32, bfloat16, float16, got 'int8'"),
    ],
)
def test_contradictions_are_refused_before_loading(
    make_spec: MakeSpec, algorithm: str, changes: dict[str, Any], message: str
) -> None:
    """The spec itself says which option does not fit the algorithm or its range."""
    with pytest.raises(ValueError, match=message):
        make_spec(algorithm, **changes)


@pytest.mark.parametrize(
    ("algorithm", "changes", "message"),
    [
        ("DFLASH", {"block_size": 7}, "block_size 7 is above the checkpoint's 6"),
        ("DDTREE", {"topk_cap": 13}, "topk_cap 13 is above the vocabulary's 12"),
        ("AR", {"context_length": 65}, "context_length 65 is above the target's 64"),
    ],
)
def test_more_than_the_models_have_is_refused(
    make_spec: MakeSpec, algorithm: str, changes: dict[str, Any], message: str
) -> None:
    """The error says what was asked for and what there is."""
    with pytest.raises(ValueError, match=message):
        Engine.load(make_spec(algorithm, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_target_layers": 4}, "num_target_layers is 4, the target in .* has 3"),
        ({"hidden_size": 20}, "hidden_size is 20, the target in .* has 16"),
        ({"vocab_size": 13}, "vocab_size is 13, the target in .* has 12"),
    ],
)
def test_drafter_for_another_target_is_refused(
    make_spec: MakeSpec,
    make_drafter: Callable[..., Path],
    tmp_path: Path,
    changes: dict[str, int],
    message: str,
) -> None:
    """File, key and both values are named."""
    path = make_drafter(tmp_path / "checkpoint", **changes)
    with pytest.raises(ValueError, match=message):
        Engine.load(make_spec("DFLASH", drafter_path=path))


@pytest.mark.parametrize(
    ("prompt", "max_new_tokens", "message"),
    [
        ([], 1, "the prompt is empty"),
        ([3, 12], 1, "token id 12 is outside 0 … 11"),
        ([-1], 1, "token id -1 is outside 0 … 11"),
        ([3] * 60, 5, r"60 prompt tokens \+ 5 new tokens exceed the context of 64"),
    ],
)
def test_bad_prompts_are_refused_at_once(
    make_engine: Make, prompt: list[int], max_new_tokens: int, message: str
) -> None:
    """The call raises, before anybody asks for a step."""
    with pytest.raises(ValueError, match=message):
        make_engine().generate(prompt, Sampling(max_new_tokens))


@pytest.mark.parametrize("count", [-1, 13])
def test_bad_log_prob_counts_are_refused(make_engine: Make, count: int) -> None:
    """Between none and the vocabulary."""
    with pytest.raises(ValueError, match=r"top_logprobs must be in 0 … 12"):
        make_engine().generate([3], Sampling(1), top_logprobs=count)


def test_context_of_the_spec_limits_requests(make_engine: Make) -> None:
    """A shorter context than the target's counts."""
    engine = make_engine(context_length=10)
    assert engine.context_length == 10
    with pytest.raises(ValueError, match="exceed the context of 10"):
        engine.generate([3] * 8, Sampling(3))


@pytest.mark.parametrize(
    ("algorithm", "changes", "width"),
    [
        ("AR", {}, 1),
        ("DFLASH", {}, 6),
        ("DFLASH", {"block_size": 3}, 3),
        ("DDTREE", {"budget": 15}, 16),
        ("DDTREE", {"budget": 0}, 1),
    ],
)
def test_verify_width_is_what_a_step_verifies(
    make_engine: Make, algorithm: str, changes: dict[str, int], width: int
) -> None:
    """One token plain, the block for a chain, root and budget for a tree."""
    engine = make_engine(algorithm, **changes)
    assert engine.verify_width == width
    steps = list(engine.generate([0, 5, 7], Sampling(6, ignore_eos=True)))
    assert {
        1 if step.tree is None else 1 + sum(step.tree.nodes_by_depth) for step in steps[1:-1]
    } == {width}


def test_facts_of_an_engine(make_engine: Make, make_spec: MakeSpec) -> None:
    """What a server reports about it."""
    engine = make_engine("DFLASH")
    assert engine.spec == make_spec("DFLASH")
    assert (engine.vocab_size, engine.context_length) == (12, 64)
    assert engine.eos_token_ids == {2}


def test_bfloat16_runs(make_engine: Make) -> None:
    """Target and drafter share the lower precision."""
    engine = make_engine("DDTREE", dtype="bfloat16")
    steps = list(engine.generate([0, 5, 7], Sampling(8, ignore_eos=True)))
    assert sum(len(step.tokens) for step in steps) == 8
