"""The configuration that a command line names."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ddtree_bench.config import Config
from ddtree_bench.errors import ConfigError
from ddtree_bench.rounds.arguments import add_run, config_of

CONFIG = """\
run: demo
servers: {ar: {model: m}}
workloads: {short: {class: short, prompts: p.jsonl, sample: 3}}
"""


def given(folder: Path, *more: str) -> Config:
    """The configuration of these arguments."""
    path = folder / "config.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    parser = argparse.ArgumentParser()
    add_run(parser)
    return config_of(parser.parse_args([str(path), *more]))


@pytest.mark.parametrize(
    ("more", "sample"), [((), 3), (("--sample", "20"), 20), (("--sample", "full"), "all")]
)
def test_the_sample_of_the_command_line_replaces_the_files(
    tmp_path: Path, more: tuple[str, ...], sample: int | str
) -> None:
    """As `--config sample=…` does with Snakemake."""
    assert given(tmp_path, *more).workloads["short"].sample == sample


def test_a_sample_that_is_none_is_told(tmp_path: Path) -> None:
    """Nothing is started with a typing error."""
    with pytest.raises(ConfigError, match="sample"):
        given(tmp_path, "--sample", "fulll")
