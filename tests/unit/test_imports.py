"""Which package may import which: one direction, held against the code's own imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
FORBIDDEN = {
    "ddtree": {"ddtree_bench", "ddtree_sglang", "sglang", "snakemake"},
    "ddtree_bench": {"ddtree", "ddtree_sglang", "sglang", "torch", "transformers", "snakemake"},
    "ddtree_sglang": {"ddtree_bench", "snakemake"},
}
"""The benchmark meets engines over HTTP and as processes, never as a library."""


def imported(file: Path) -> Iterator[str]:
    """Top-level names of all that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_run_one_way(package):
    """No module of a package imports what its package must know nothing of."""
    files = sorted((SOURCE / package).rglob("*.py"))
    wrong = {
        f"{file.relative_to(SOURCE)} imports {name}"
        for file in files
        for name in imported(file)
        if name in FORBIDDEN[package]
    }
    assert wrong == set()


def test_every_package_of_the_source_folder_is_held_to_a_direction():
    """A new package needs a row above (checking devices beside the product do not)."""
    packages = {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").exists()}
    assert packages - {"sglang_cpu_check"} <= set(FORBIDDEN)
