"""Two ranks on this machine's CPU: they grow the same trees and answer like plain decoding."""

import importlib.util
from pathlib import Path

import pytest
from real.ddtree_sglang.servers import (
    ROOT,
    Running,
    check_choices,
    configured,
    shared_length,
    steps_within,
    tree_server,
)

pytestmark = [pytest.mark.heavy, pytest.mark.extended]

TOKENS = 64


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> tuple[str, str]:
    """Target and drafter with a number of heads that two ranks can share; they compute the same."""
    source = ROOT / "benchmarks/ddtree_sglang/padding.py"
    spec = importlib.util.spec_from_file_location("padding", source)
    assert spec is not None
    assert spec.loader is not None
    padding = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(padding)
    server, folder = configured(), tmp_path_factory.mktemp("padded")
    assert server.drafter is not None
    target = padding.pad_heads(ROOT / server.model, folder / "target")
    drafter = padding.pad_heads(ROOT / server.drafter, folder / "drafter")
    return str(target), str(drafter)


def test_two_ranks_answer_as_one(
    padded: tuple[str, str], prompts: list[list[int]], plain: Running, logs: Path
) -> None:
    """Same texts up to near ties, in as many steps; a rank with another tree would hang or part."""
    target, drafter = padded
    flags = ("--model-path", target, "--speculative-draft-model-path", drafter)
    trace = "--speculative-ddtree-trace"
    asked = [prompts[0], prompts[5], prompts[8], prompts[12]]
    answers = []
    for ranks in ("1", "2"):
        args = (*flags, trace, "--tp-size", ranks)
        with tree_server(logs, 15, 8, *args, name=f"tree-tp{ranks}") as server:
            answers.append(server.answers(asked, TOKENS, at_once=1))
    steps, steps_of_two = 0, 0
    for prompt, one, two in zip(asked, *answers, strict=True):
        check_choices(plain, prompt, two["output_ids"])
        length = shared_length(plain, prompt, one["output_ids"], two["output_ids"])
        steps += steps_within(one, 0, length)
        steps_of_two += steps_within(two, 0, length)
    assert steps_of_two == pytest.approx(steps, rel=0.05)
