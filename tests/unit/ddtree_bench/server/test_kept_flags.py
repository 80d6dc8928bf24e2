"""What is installed is told without importing it, and its flags are listed once."""

import json
import os
import sys
from pathlib import Path

import pytest

from ddtree_bench.config import Server
from ddtree_bench.server.kept_flags import FOLDER, place_of, read_kept
from ddtree_bench.server.preflight import check_sglang

pytestmark = pytest.mark.process

ANSWER = {
    "version": "0.5.17",
    "options": [
        {"names": [name], "nargs": None, "choices": None} for name in ("--device", "--model-path")
    ],
    "algorithms": [],
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with packages in which SGLang and one plug-in seem to be installed."""
    site = tmp_path / "site"
    for package in ("sglang/srt", "plug"):
        (site / package).mkdir(parents=True)
    (site / "sglang/__init__.py").write_text("raise ImportError('was imported')", encoding="utf-8")
    (site / "sglang/srt/server_args.py").touch()
    (site / "plug/__init__.py").touch()
    for name in ("sglang-0.5.17", "plug-1"):
        folder = site / f"{name}.dist-info"
        folder.mkdir()
        version = name.partition("-")[2]
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.partition('-')[0]}\nVersion: {version}\n"
        )
    entry = site / "plug-1.dist-info/entry_points.txt"
    entry.write_text("[sglang.srt.plugins]\nplug = plug:register\n", encoding="utf-8")
    return site


def environment(site: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), **more}


@pytest.mark.parametrize(
    "changed", ["sglang/srt/server_args.py", "plug/__init__.py", "plug-1.dist-info", None]
)
def test_another_installation_has_another_place(site: Path, changed: str | None) -> None:
    """Edited arguments, an edited or removed plug-in; what stays the same keeps its place."""
    python, env = Path(sys.executable), environment(site)
    before = place_of(site, python, env)
    assert before is not None
    if changed == "plug-1.dist-info":
        (site / changed).rename(site / "gone")
    elif changed is not None:
        os.utime(site / changed, (1, 1))
    assert (place_of(site, python, env) == before) == (changed is None)


def test_another_environment_has_another_place(site: Path) -> None:
    """Plug-ins are chosen by it."""
    python = Path(sys.executable)
    plain = place_of(site, python, environment(site))
    assert plain != place_of(site, python, environment(site, SGLANG_PLUGINS="none"))


def test_nothing_is_kept_of_what_is_not_installed(tmp_path: Path) -> None:
    """No SGLang, or no such interpreter: the probe says what is wrong."""
    env = {"PATH": os.environ["PATH"]}
    assert place_of(tmp_path, Path(sys.executable), env) is None
    assert place_of(tmp_path, tmp_path / "python", env) is None


def test_flags_are_listed_once(site: Path, tmp_path: Path) -> None:
    """The second check asks nobody; damaged, they are listed again."""
    count, python = tmp_path / "count", tmp_path / "python"
    listed = f"echo x >> {count}; echo 'ddtree-bench options: {json.dumps(ANSWER)}'"
    python.write_text(
        f'#!/bin/sh\ncase "$2" in *add_cli_args*) {listed} ;; '
        f'*) exec {sys.executable} "$@" ;; esac\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    server = Server(engine="sglang", model="m", python=str(python), args=("--device", "cpu"))
    results = tmp_path / "results"
    for times in (1, 1):
        check_sglang("one", server, environment(site), results)
        assert count.read_text().count("x") == times
    (kept,) = (results / FOLDER).iterdir()
    assert read_kept(kept) is not None
    kept.write_text("{half", encoding="utf-8")
    os.utime(python, (1, 1))  # else the answer of this process is taken
    check_sglang("one", server, environment(site), results)
    assert count.read_text().count("x") == 2
