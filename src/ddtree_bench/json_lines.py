"""Records as JSON Lines, a record a line: one reader, so that all files meet a wrong line alike.

A wrong line is never read by halves and never passed over in silence. What can be made again
(cells, log probabilities, replies) is refused with the line's place; a history, which cannot, loses
that line only, with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from ddtree_bench.errors import BenchError

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class DamagedFile(BenchError):
    """A file of records that does not hold what it should."""


class WrongLine(DamagedFile):
    """A line that is not the record that it should be."""

    def __init__(self, path: Path, number: int, error: ValidationError) -> None:
        first = error.errors()[0]
        super().__init__(
            f"not a record: {first['msg']}",
            where=f"{path}:{number}",
            remedy="have the file made again",
        )
        self.number = number
        """Of the line, from 1."""
        self.key = ".".join(map(str, first["loc"]))
        """The field at fault; empty if it is the whole line."""
        self.reason = str(first["msg"])


def read_lines(path: Path, kind: TypeAdapter[T]) -> Iterator[tuple[int, T]]:
    """Every record of a file with the number of its line, from 1; blank lines are none.

    Raises:
        FileNotFoundError: there is no such file.
        WrongLine: a line is not of this kind; names file and line.
    """
    for number, record in _parsed(path, kind):
        if isinstance(record, WrongLine):
            raise record
        yield number, record


def read_good_lines(path: Path, kind: TypeAdapter[T]) -> Iterator[T]:
    """The records of a file, wrong lines left out with a warning; none if there is no file."""
    if not path.exists():
        return
    for _, record in _parsed(path, kind):
        if isinstance(record, WrongLine):
            _LOG.warning("%s\n  the line is left out", record)
        else:
            yield record


def _parsed(path: Path, kind: TypeAdapter[T]) -> Iterator[tuple[int, T | WrongLine]]:
    # not splitlines(): JSON text may hold U+2028, which is no end of a line here
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                yield number, kind.validate_json(line)
            except ValidationError as error:
                yield number, WrongLine(path, number, error)
