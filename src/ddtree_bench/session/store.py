"""Finished cells, kept under their key; a run continues where it stopped, and stores can be merged.

`python -m ddtree_bench.session.store merge FROM INTO` copies cells measured elsewhere into a store.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, TypeAdapter

from ddtree_bench.errors import MachineError
from ddtree_bench.json_lines import DamagedFile, read_lines
from ddtree_bench.records import CellRecord, RequestRecord

_LOG = logging.getLogger(__name__)
_LINE: TypeAdapter[CellRecord | RequestRecord] = TypeAdapter(
    Annotated[CellRecord | RequestRecord, Field(discriminator="kind")]
)


class MeasuredCell(NamedTuple):
    """A cell and its requests, in the order in which they were sent."""

    cell: CellRecord
    requests: tuple[RequestRecord, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did, in cells."""

    copied: int
    known: int
    damaged: int


@dataclass(frozen=True, slots=True)
class CellStore:
    """A folder of cells that ended well, one file a key."""

    folder: Path

    def path(self, key: str) -> Path:
        """Where the cell of this key is or would be."""
        return self.folder / f"{key}.jsonl"

    def get(self, key: str) -> MeasuredCell | None:
        """The cell of this key; None if it is absent, or damaged (then it is put aside)."""
        path = self.path(key)
        if not path.exists():
            return None
        try:
            return _only_cell(path)
        except DamagedFile as error:
            aside = path.with_suffix(".damaged")
            path.replace(aside)
            _LOG.warning("%s\n  kept as %s; the cell is measured again", error, aside.name)
            return None

    def put(self, measured: MeasuredCell) -> None:
        """Store a cell that ended well; after a power cut it is there whole or not at all."""
        if not measured.cell.status.ok:
            raise ValueError(f"a failure is never stored: {measured.cell.status}")
        write_cells(self.path(measured.cell.key), [measured])

    def merge(self, other: Path) -> Merged:
        """Copy the cells of another store that this one lacks; damaged ones stay behind.

        Raises MachineError if the other folder does not exist.
        """
        if not other.is_dir():
            raise MachineError(f"there is no folder {other}", remedy="name a `cells` folder")
        copied = known = damaged = 0
        for path in sorted(other.glob("*.jsonl")):
            if self.path(path.stem).exists():
                known += 1
                continue
            try:
                self.put(_only_cell(path))
            except DamagedFile as error:
                _LOG.warning("%s\n  not merged", error)
                damaged += 1
            else:
                copied += 1
        return Merged(copied, known, damaged)


def write_cells(path: Path, cells: Iterable[MeasuredCell]) -> None:
    """Write cells as JSON Lines, each cell before its requests; the file appears at once."""
    lines = (line.model_dump_json() for cell in cells for line in (cell.cell, *cell.requests))
    write_whole(path, "".join(f"{line}\n" for line in lines))


def write_whole(path: Path, text: str) -> None:
    """Write a text so that no reader and no power cut ever meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_cells(path: Path) -> Iterator[MeasuredCell]:
    """The cells of a file; raises DamagedFile, naming the line, if it is not as written."""
    cell: CellRecord | None = None
    requests: list[RequestRecord] = []
    for number, record in read_lines(path, _LINE):
        if isinstance(record, CellRecord):
            if cell is not None:
                yield MeasuredCell(cell, tuple(requests))
            cell, requests = record, []
        elif cell is None or record.cell != cell.cell:
            raise DamagedFile("a request without its cell", where=f"{path}:{number}")
        else:
            requests.append(record)
    if cell is not None:
        yield MeasuredCell(cell, tuple(requests))


def _only_cell(path: Path) -> MeasuredCell:
    cells = list(read_cells(path))
    if len(cells) != 1:
        raise DamagedFile(f"one cell expected, {len(cells)} found", where=str(path))
    cell = cells[0].cell
    if cell.key != path.stem or not cell.status.ok or not cells[0].requests:
        raise DamagedFile("not the finished cell that its name says", where=str(path))
    return cells[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0 after a merge, 2 if a folder is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m ddtree_bench.session.store", description=__doc__
    )
    commands = parser.add_subparsers(required=True)
    merge = commands.add_parser("merge", help="copy the cells of one store into another")
    merge.add_argument("source", metavar="FROM", type=Path)
    merge.add_argument("target", metavar="INTO", type=Path)
    given = parser.parse_args(arguments)
    try:
        merged = CellStore(given.target).merge(given.source)
    except MachineError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{merged.copied} copied, {merged.known} known already, {merged.damaged} damaged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
