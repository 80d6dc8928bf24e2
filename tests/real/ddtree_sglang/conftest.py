"""What all tests of one session share: prompts, and a server that decodes plainly and judges."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from real.ddtree_sglang.servers import ROOT, Running, configured, serving

from ddtree_bench.chat_template import PromptTokenizer


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for logs; the working folder is the repository's root, as in a run."""
    before = Path.cwd()
    os.chdir(ROOT)
    yield tmp_path_factory.mktemp("ddtree-sglang")
    os.chdir(before)


@pytest.fixture(scope="session")
def prompts(logs: Path) -> list[list[int]]:
    """The eval prompts as token ids, in the file's order."""
    tokenizer = PromptTokenizer.load(Path(configured().model))
    groups = json.loads((ROOT / "benchmarks/eval-prompts.json").read_text(encoding="utf-8"))
    return [
        list(tokenizer.render([{"role": "user", "content": question}]))
        for group in groups.values()
        for question in group
    ]


@pytest.fixture(scope="session")
def plain(logs: Path) -> Iterator[Running]:
    """A server without speculation."""
    with serving("plain", logs) as server:
        yield server
