"""What of a node is left in the packed results of an example."""

import tarfile
from pathlib import Path

import pytest

from ddtree_bench.charts.data import read_tables
from ddtree_bench.config import load_config
from ddtree_bench.errors import MachineError
from ddtree_bench.report.example import MARKS, pack, page_with, told, unpack
from ddtree_bench.tables.build import build_tables
from ddtree_bench.tables.write import write_tables

REPOSITORY = Path(__file__).resolve().parents[4]
KEPT = REPOSITORY / "examples" / "h200-smollm2"

GPUS = ("GPU-0f8a9c1e-1111-2222-3333-444455556666", "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeffff0000")


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """One launch on a node with two GPUs."""
    folder = tmp_path / "brought/home"
    launch = folder / "ar/launch-1"
    launch.mkdir(parents=True)
    facts = f'{{"kernel": "6.8.0-41-rented", "gpus": ["{GPUS[1]}", "{GPUS[0]}", "{GPUS[1]}"]}}'
    (launch / "launch.json").write_text(facts, encoding="utf-8")
    (launch / "attempt-1.server.log").write_bytes(b"/home/me/site/torch.py \xff http://a/b/c\n")
    (launch / "launch.kept.json").write_text("a copy", encoding="utf-8")
    return folder


def test_a_node_is_not_told(sessions: Path, tmp_path: Path) -> None:
    """Numbers for GPUs, the kernel's number, another folder; copies stay behind."""
    archive = tmp_path / "example/sessions.tar.gz"
    assert pack(sessions, archive, {"/home/me/": "/opt/node/"}) == {"/opt/node"}
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
        names = packed.getnames()
    assert names == [
        "sessions/ar/launch-1/launch.json",
        "sessions/ar/launch-1/attempt-1.server.log",
    ]
    launch = tmp_path / "sessions/ar/launch-1"
    told = (launch / "launch.json").read_text(encoding="utf-8")
    assert told == '{"kernel": "6.8.0", "gpus": ["GPU-0", "GPU-1", "GPU-0"]}'
    log = (launch / "attempt-1.server.log").read_text(encoding="utf-8")
    assert log == "/opt/node/site/torch.py \N{REPLACEMENT CHARACTER} http://a/b/c\n"


def test_the_same_sessions_give_the_same_bytes(sessions: Path, tmp_path: Path) -> None:
    """Whenever they are packed."""
    first, second = tmp_path / "one.tar.gz", tmp_path / "two.tar.gz"
    pack(sessions, first, {})
    (sessions / "ar/launch-1/launch.json").touch()
    pack(sessions, second, {})
    assert first.read_bytes() == second.read_bytes()


def test_a_folder_without_sessions_is_told(tmp_path: Path) -> None:
    """Nothing is packed."""
    with pytest.raises(MachineError, match="no sessions"):
        pack(tmp_path, tmp_path / "x.tar.gz", {})
    assert not (tmp_path / "x.tar.gz").exists()


def test_the_pages_say_what_the_example_says(tmp_path: Path) -> None:
    """Their numbers are those that today's code makes of the kept sessions.

    Mend with `make report-example` and `scripts/keep-example results/h200-smollm2/sessions`.
    """
    config = load_config(KEPT / "config.yaml")
    sessions = unpack(KEPT / "sessions.tar.gz", tmp_path)
    folders = sorted(path.parent for path in sessions.glob("*/launch-*/launch.json"))
    write_tables(build_tables(folders, config), tmp_path / "tables")
    said = told(read_tables(tmp_path / "tables"), config)
    for page in (REPOSITORY / "README.md", KEPT / "README.md"):
        assert page_with(page, said) == page.read_text(encoding="utf-8"), page


def test_only_what_is_between_the_marks_is_written(tmp_path: Path) -> None:
    """A second time changes nothing; a page without marks is told."""
    page = tmp_path / "README.md"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n", encoding="utf-8")
    written = page_with(page, "- new")
    assert written == f"before\n{MARKS[0]}\n\n- new\n\n{MARKS[1]}\nafter\n"
    page.write_text(written, encoding="utf-8")
    assert page_with(page, "- new") == written
    page.write_text(f"{MARKS[1]} {MARKS[0]}", encoding="utf-8")
    with pytest.raises(MachineError, match=r"no place(.|\n)*keep-example"):
        page_with(page, "- new")
