"""The end of any server's log, and the line of it that tells most."""

from __future__ import annotations

import re
from pathlib import Path

TAIL_BYTES = 64 * 1024
TAIL_LINES = 40
_EXCEPTION = re.compile(r"^(?:\[[^\]]*\] )?(?:\w+\.)*\w*(?:Error|Exception|Exit)\b(?::.*)?$")
_COMPLAINT = re.compile(r"\b(?:error|fatal|killed|segmentation fault|abort(?:ed)?)\b", re.I)
_OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|Cannot allocate memory|\bMemoryError\b|bad_alloc"
)


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log; empty where there is no log yet."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def last_error(text: str) -> str | None:
    r"""The line that tells most: the last exception, else complaint, else line; None if empty.

    >>> last_error("RuntimeError: no kernel\nkill_process_tree called")
    'RuntimeError: no kernel'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in (_EXCEPTION, _COMPLAINT):
        found = [line for line in lines if pattern.search(line)]
        if found:
            return found[-1]
    return lines[-1] if lines else None


def says_out_of_memory(text: str) -> bool:
    """Whether a log holds the words of an allocation that failed."""
    return _OUT_OF_MEMORY.search(text) is not None
