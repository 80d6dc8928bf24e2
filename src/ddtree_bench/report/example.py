"""Keep a measured run as an example: `scripts/keep-example SESSIONS` (docs/gpu-node.md).

Packs the raw results, what is of the machine and not of the measurement replaced, makes the report
from the packed files, and draws the figure of the README.
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
from pathlib import Path
from typing import Final

from ddtree_bench.charts.draw import draw_picture
from ddtree_bench.config import load_config
from ddtree_bench.errors import BenchError, MachineError
from ddtree_bench.layout import RunLayout
from ddtree_bench.report.__main__ import report_of

KEPT: Final = ("spec.json", "launch.json", "cells.jsonl", "logprobs.jsonl", "*.server.log")
"""Files of a session that are packed."""
PICTURE: Final = "speedup"
"""The figure that the README shows."""
_GPU: Final = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KERNEL: Final = re.compile(r'("kernel": "\d+(?:\.\d+)*)[^"]*"')
_PLACE: Final = re.compile(r"(?<![\w.:/])(/\w[\w.-]*/\w[\w.-]*)/")


def keep(
    config_path: Path, sessions: Path, example: Path, picture: Path, changes: Mapping[str, str]
) -> str:
    """Fill the folder of an example and its picture; returns what of the machine is still named.

    Raises BenchError as `report_of` does, and if there is no session.
    """
    archive = example / "sessions.tar.gz"
    places = pack(sessions, archive, changes)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        pdf = report_of(config_path, Path(folder) / "sessions")
    shutil.copyfile(pdf, example / pdf.name)
    config = load_config(config_path)
    draw_picture(PICTURE, RunLayout.of(config.run).tables, config, picture)
    return ", ".join(sorted(places)) or "none"


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
    parser.add_argument("--config", type=Path, default=Path("config/h200-smollm2.yaml"))
    parser.add_argument("--example", type=Path, default=Path("examples/h200-smollm2"))
    parser.add_argument("--picture", type=Path, default=Path("docs/images/speedup-h200.png"))
    parser.add_argument(
        "--replace", action="append", default=[], type=_change, metavar="OLD=NEW",
        help="such as a folder of the node; may be given several times",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        places = keep(
            given.config, given.sessions, given.example, given.picture, dict(given.replace)
        )
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"folders of the node that are still named: {places}")
    print(f"now read {given.example}/README.md against the report's first page")
    return 0


if __name__ == "__main__":
    sys.exit(main())
