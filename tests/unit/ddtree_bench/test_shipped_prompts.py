"""The prompts in this repository: enough of them, small, and each set with its licence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ddtree_bench.config import CLASSES, load_config
from ddtree_bench.prompts import load_prompts

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "workflow/resources/prompts"
FILES = sorted(FOLDER.rglob("*.jsonl"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_every_prompt_says_what_it_is(path: Path) -> None:
    """The file is valid, and each prompt has the four tags that tables are split by."""
    for prompt in load_prompts(path):
        assert {"language", "domain", "length", "source"} <= prompt.tags.keys(), prompt.id


def test_every_class_has_a_hundred_prompts_in_the_default_configuration() -> None:
    """`sample=full` asks that many; the class of the original notes has its three."""
    config = load_config(ROOT / "config/config.yaml")
    prompts: Counter[str] = Counter()
    for workload in config.workloads.values():
        prompts[workload.workload_class] += len(load_prompts(ROOT / workload.prompts))
    assert prompts.pop("original") == 3
    assert set(prompts) == set(CLASSES)
    assert min(prompts.values()) >= 100


def test_the_default_sample_is_four_prompts_a_class() -> None:
    """So that a run takes minutes."""
    config = load_config(ROOT / "config/config.yaml")
    sizes: Counter[str] = Counter()
    for workload in config.workloads.values():
        if workload.workload_class != "original":
            assert isinstance(workload.sample, int)
            sizes[workload.workload_class] += workload.sample
    assert sizes == dict.fromkeys(CLASSES, 4)


def test_sets_of_others_carry_source_and_licence() -> None:
    """And all prompts together stay below 4 MB."""
    for folder in (path for path in FOLDER.iterdir() if path.is_dir()):
        assert (folder / "SOURCE.md").stat().st_size > 0, folder
        assert (folder / "LICENSE").stat().st_size > 1000, folder
    assert sum(path.stat().st_size for path in FOLDER.rglob("*")) < 4e6
