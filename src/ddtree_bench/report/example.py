"""Keep a measured run as an example: `scripts/keep-example SESSIONS` (docs/gpu-node.md).

Packs the raw results, what is of the machine and not of the measurement replaced, makes the report
from the packed files, draws the figure of the README, and writes what the report's first page says
between the marks of the pages that tell of the example.
"""

from __future__ import annotations

import argparse
import gzip
import io
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ddtree_bench.charts.data import Tables, read_tables
from ddtree_bench.charts.draw import draw_picture
from ddtree_bench.config import Config, load_config
from ddtree_bench.errors import BenchError, MachineError
from ddtree_bench.layout import RunLayout
from ddtree_bench.report import judgement, summary
from ddtree_bench.report.__main__ import report_of
from ddtree_bench.report.view import View

KEPT: Final = ("spec.json", "launch.json", "cells.jsonl", "logprobs.jsonl", "*.server.log")
"""Files of a session that are packed."""
PICTURE: Final = "speedup"
"""The figure that the README shows."""
MARKS: Final = ("<!-- by scripts/keep-example -->", "<!-- end -->")
"""Between them a page says what the example says."""
_GPU: Final = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KERNEL: Final = re.compile(r'("kernel": "\d+(?:\.\d+)*)[^"]*"')
_PLACE: Final = re.compile(r"(?<![\w.:/])(/\w[\w.-]*/\w[\w.-]*)/")


@dataclass(frozen=True, slots=True)
class Example:
    """Where an example lies, and where it is told of."""

    config: Path
    folder: Path
    picture: Path
    pages: tuple[Path, ...]

    @property
    def measured(self) -> Path:
        """The configuration that the sessions were measured with; `config` may go on to change."""
        return self.folder / "config.yaml"

    @property
    def archive(self) -> Path:
        """The packed sessions."""
        return self.folder / "sessions.tar.gz"


def keep(example: Example, sessions: Path, changes: Mapping[str, str]) -> str:
    """Fill the folder of an example, its picture and pages; returns what of the machine is named.

    Raises BenchError as `report_of` does, if there is no session, or a page has no marks.
    """
    places = pack(sessions, example.archive, changes)
    if example.config != example.measured:
        shutil.copyfile(example.config, example.measured)
    with tempfile.TemporaryDirectory() as folder:
        pdf = report_of(example.measured, unpack(example.archive, Path(folder)))
    shutil.copyfile(pdf, example.folder / pdf.name)
    config = load_config(example.measured)
    tables = RunLayout.of(config.run).tables
    draw_picture(PICTURE, tables, config, example.picture)
    said = told(read_tables(tables), config)
    for page in example.pages:
        page.write_text(page_with(page, said), encoding="utf-8")
    return ", ".join(sorted(places)) or "none"


def unpack(archive: Path, folder: Path) -> Path:
    """The sessions of an archive, in a folder; returns where they are."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / "sessions"


def told(tables: Tables, config: Config) -> str:
    """The report's first page, and why trees win or lose, as a list in Markdown."""
    view = View(tables, config)
    scope = dict(summary.scope(view))
    items = (
        f"**{judgement.bottom_line(view)}**",
        *summary.headline(view),
        *judgement.causes(view),
        f"Measured {summary.dates(tables['cells']['started_unix_s'])}; {scope['Machine']}; "
        f"{scope['Launches, cells']}.",
    )
    return "\n".join(f"- {item}" for item in items)


def page_with(page: Path, said: str) -> str:
    """A page with this text between its marks; raises MachineError if it has none."""
    text = page.read_text(encoding="utf-8")
    before, start, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not (start and end):
        raise MachineError(
            "the page has no place for what the example says",
            where=str(page),
            remedy=f"write {MARKS[0]} and {MARKS[1]}, a line each, where it should stand",
        )
    return f"{before}{start}\n\n{said}\n\n{end}{after}"


def pack(sessions: Path, archive: Path, changes: Mapping[str, str]) -> set[str]:
    """Pack sessions; the same sessions give the same bytes. Returns the absolute folders in them.

    GPUs become `GPU-0`, `GPU-1`, …, a kernel keeps its number, and `changes` say what else to
    replace. Raises MachineError if there is no session.
    """
    files = [(path, path.relative_to(sessions.parent)) for path in _files(sessions)]
    if not files:
        raise MachineError(
            "there are no sessions",
            where=str(sessions),
            remedy="name the folder that holds {server}/launch-{n}/launch.json",
        )
    texts = [(path.read_text(encoding="utf-8", errors="replace"), name) for path, name in files]
    gpus = {uuid: f"GPU-{n}" for n, uuid in enumerate(_gpus(text for text, _ in texts))}
    places: set[str] = set()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as packed:
        for text, name in texts:
            told = _replaced(text, {**gpus, **changes})
            places.update(_PLACE.findall(told))
            entry = tarfile.TarInfo(f"sessions/{name.relative_to(name.parts[0])}")
            data = told.encode()
            entry.size, entry.mode = len(data), 0o644
            packed.addfile(entry, io.BytesIO(data))
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return places


def _files(sessions: Path) -> Iterator[Path]:
    for launch in sorted(sessions.glob("*/launch-*/launch.json")):
        for pattern in KEPT:
            yield from sorted(launch.parent.glob(pattern))


def _gpus(texts: Iterable[str]) -> tuple[str, ...]:
    """UUIDs in the order in which they appear."""
    return tuple(dict.fromkeys(uuid for text in texts for uuid in _GPU.findall(text)))


def _replaced(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return _KERNEL.sub(r'\1"', text)


def _change(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not old or not equals:
        raise argparse.ArgumentTypeError(f"OLD=NEW expected, got {text!r}")
    return old, new


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: 0, or 2 with the reason."""
    parser = argparse.ArgumentParser(prog="scripts/keep-example", description=__doc__)
    parser.add_argument("sessions", type=Path, help="folder of the sessions as brought home")
    parser.add_argument(
        "--config", type=Path, help="what was measured, if it is not the example's own config.yaml"
    )
    parser.add_argument("--example", type=Path, default=Path("examples/h200-smollm2"))
    parser.add_argument("--picture", type=Path, default=Path("docs/images/speedup-h200.png"))
    parser.add_argument(
        "--replace", action="append", default=[], type=_change, metavar="OLD=NEW",
        help="such as a folder of the node; may be given several times",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        pages = (Path("README.md"), given.example / "README.md")
        config = given.config or given.example / "config.yaml"
        example = Example(config, given.example, given.picture, pages)
        places = keep(example, given.sessions, dict(given.replace))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"folders of the node that are still named: {places}")
    print(f"now read {given.example}/README.md: what is not between its marks is by hand")
    return 0


if __name__ == "__main__":
    sys.exit(main())
