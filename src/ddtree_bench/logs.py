"""Send what a script prints and logs to its log file."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def log_to(path: str | Path) -> Iterator[None]:
    """Within the block stdout, stderr and `logging` go to a file; an error's trace does, too."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        target.open("w", encoding="utf-8", buffering=1) as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            yield
        except BaseException:
            traceback.print_exc(file=file)
            raise
        finally:
            root.removeHandler(handler)
