"""Stable hashes of JSON data and files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def canonical_json(data: Any) -> str:  # noqa: ANN401 - any JSON value
    """The same text for equal JSON data, whatever the order of its keys."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def json_sha256(data: Any) -> str:  # noqa: ANN401 - any JSON value
    """SHA-256 of the canonical JSON text, in hex."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
