"""What the command lines of a run have in common: its configuration, sample and results."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ddtree_bench.config import Config, load_config
from ddtree_bench.errors import ConfigError, Fault
from ddtree_bench.layout import RunLayout


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the configuration, `--sample` and `--results`."""
    parser.add_argument("config", type=Path, help="configuration of the run")
    parser.add_argument(
        "--sample",
        metavar="N|full",
        help="as `--config sample=…` of Snakemake; default: the file's",
    )
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of all runs")


def run_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser of `python -m ddtree_bench.rounds.NAME` with what `add_run` adds."""
    parser = argparse.ArgumentParser(
        prog=f"python -m ddtree_bench.rounds.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    return parser


def config_of(given: argparse.Namespace) -> Config:
    """The configuration that the arguments of `add_run` name.

    Raises ConfigError if it is faulty.
    """
    if given.sample is None:
        return load_config(given.config)
    sample = int(given.sample) if given.sample.isdecimal() else given.sample
    return load_config(given.config, {"sample": sample})


def require_same_sample(config: Config, results: Path) -> None:
    """Raise ConfigError if there are results of another `sample`, which would be replaced.

    A run without Snakemake does not keep its configuration, and is not checked.
    """
    path = RunLayout.of(config.run, results).root / "config.json"
    if not path.exists():
        return
    known = json.loads(path.read_text(encoding="utf-8")).get("sample")
    if known != config.sample:
        told = f"say SAMPLE={known} (`--sample {known}`)" if known else "leave SAMPLE out"
        what = (
            f"the results are those of {_named(known)}, this call asks for "
            f"{_named(config.sample)}; {told}, or measure the other one first (`make report`)"
        )
        raise ConfigError([Fault(str(path), None, "sample", what)])


def _named(sample: object) -> str:
    return "the file's samples" if sample is None else f"`sample: {sample}`"
