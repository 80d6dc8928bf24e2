import argparse

import pytest

from ddtree_sglang.options import TreeOptions, add_flags, publish_flags, read_options


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return parser.parse_args(argv)


def test_an_empty_environment_gives_the_defaults() -> None:
    """15 nodes and the root verify as many tokens as a chain of 16."""
    options = read_options({})
    assert options == TreeOptions(budget=15, topk=8, trace=False)
    assert options.width == 16


def test_flags_reach_other_processes_through_the_environment() -> None:
    """What is given on the command line is what a process with that environment reads."""
    environ: dict[str, str] = {}
    publish_flags(
        parse(
            "--speculative-ddtree-budget",
            "64",
            "--speculative-ddtree-topk-cap=4",
            "--speculative-ddtree-trace",
        ),
        environ,
    )
    assert read_options(environ) == TreeOptions(budget=64, topk=4, trace=True)


def test_a_flag_wins_over_the_environment_and_leaves_the_rest_of_it() -> None:
    """One flag changes one value."""
    environ = {"SGLANG_DDTREE_BUDGET": "8", "SGLANG_DDTREE_TOPK_CAP": "2"}
    publish_flags(parse("--speculative-ddtree-budget", "32"), environ)
    assert read_options(environ) == TreeOptions(budget=32, topk=2)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"SGLANG_DDTREE_BUDGET": "0"}, r"ddtree-budget .* must be 1 to 255, got 0"),
        ({"SGLANG_DDTREE_BUDGET": "256"}, r"must be 1 to 255, got 256"),
        ({"SGLANG_DDTREE_TOPK_CAP": "0"}, r"topk-cap .* must be 1 to 64, got 0"),
        ({"SGLANG_DDTREE_TOPK_CAP": "many"}, "SGLANG_DDTREE_TOPK_CAP must be a whole number"),
    ],
)
def test_a_size_out_of_range_is_refused(environ: dict[str, str], message: str) -> None:
    """The message names flag or variable, the range, and what was found."""
    with pytest.raises(ValueError, match=message):
        read_options(environ)
