"""What a run has found: figures, checks that may fail, and the target each figure has."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path

from estimates import Estimate
from servers import JsonObject


@dataclass(slots=True)
class Report:
    """All that was found; written after every part."""

    machine: JsonObject = field(default_factory=dict)
    parts: dict[str, JsonObject] = field(default_factory=dict)
    checks: dict[str, JsonObject] = field(default_factory=dict)
    targets: list[JsonObject] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Parts that are not timed run at once."""

    def check(self, name: str, passed: bool, found: object) -> None:
        """Record and print something that must hold."""
        with self._lock:
            self.checks[name] = {"passed": passed, "found": found}
        _say(f"{'ok    ' if passed else 'FAILED'} {name}: {found}")

    def target(
        self, figure: str, found: Estimate | float, *, least: float | None, most: float | None
    ) -> None:
        """Record and print a figure with what is aimed at; missing it fails nothing."""
        value = found.value if isinstance(found, Estimate) else found
        met: bool | None = (least is None or value >= least) and (most is None or value <= most)
        if least is None and most is None:
            met = None
        row: JsonObject = {"figure": figure, "value": value, "met": met}
        row |= {k: v for k, v in (("least", least), ("most", most)) if v is not None}
        if isinstance(found, Estimate):
            row |= {"low": found.low, "high": found.high, "units": found.units}
        with self._lock:
            self.targets.append(row)
        aims = [f"at least {least:.3f}"] if least is not None else []
        aims += [f"at most {most:.3f}"] if most is not None else []
        aim = " and ".join(aims) or "no target"
        shown = str(found) if isinstance(found, Estimate) else f"{found:.3f}"
        mark = {True: "met   ", False: "missed", None: "      "}[met]
        _say(f"{mark} {figure}: {shown} ({aim})")

    def write(self, folder: Path) -> None:
        """Write report.json."""
        folder.mkdir(parents=True, exist_ok=True)
        whole = {
            "machine": self.machine,
            "targets": self.targets,
            "checks": self.checks,
            "parts": self.parts,
        }
        with self._lock:
            text = json.dumps(whole, indent=1)
            (folder / "report.json").write_text(text + "\n", encoding="utf-8")


def _say(line: str) -> None:
    print(line, flush=True)
