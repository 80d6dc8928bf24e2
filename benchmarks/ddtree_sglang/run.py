"""What a part gets: servers by name, sizes, its deadline, and the report to write into."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from asking import Server
from estimates import Estimate
from findings import Report
from servers import CheckError, Launch


@dataclass(frozen=True, slots=True)
class Run:
    """One part's surroundings.

    Attributes:
        launch: models, common arguments, folder of the outputs.
        urls: running servers.
        report: of the whole run.
        prompts: prompts a class.
        requests: of the soak.
        deadline_s: monotonic time after which nothing more begins.
    """

    launch: Launch
    urls: dict[str, str]
    report: Report
    prompts: int
    requests: int
    deadline_s: float

    @property
    def target(self) -> Path:
        """The target model's folder."""
        return Path(self.launch.target)

    def servers(self, *names: str) -> list[Server]:
        """The named servers; raises CheckError if one does not run."""
        missing = [name for name in names if name not in self.urls]
        if missing:
            raise CheckError(f"not running: {', '.join(missing)}")
        return [Server(name, self.urls[name]) for name in names]

    def is_late(self) -> bool:
        """Whether the part's time is over."""
        return time.monotonic() > self.deadline_s

    def target_of(
        self,
        figure: str,
        found: Estimate | float,
        *,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        """Report a figure and its target; see `Report.target`."""
        self.report.target(figure, found, least=least, most=most)
