"""One run as the report's parts see it: tables, configuration, names and reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from ddtree_bench.charts.data import Tables, lowest_concurrency, titles
from ddtree_bench.columns import POOLED, TABLES, Column
from ddtree_bench.config import Config
from ddtree_bench.session.capacity import FILLED_SHARE
from ddtree_bench.status import Status

EQUAL_WIDTH = "equal width"
BASELINE = "baseline"
PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class View:
    """Tables and configuration of one run."""

    tables: Tables
    config: Config

    def title(self, server: str) -> str:
        """The server's name for people."""
        return titles(self.config).get(server, server)

    @property
    def confidence(self) -> str:
        """The level of all intervals, such as `95 %`."""
        return f"{100 * self.config.analysis.confidence:g} %"

    @property
    def baseline(self) -> str:
        """Title of the server that all are compared with."""
        return self.title(self.config.analysis.baseline)

    @property
    def concurrencies(self) -> list[int]:
        """All concurrencies that were measured, lowest first."""
        measured = self.tables["overall"]["concurrency"].dropna()
        return sorted({int(value) for value in measured})

    @property
    def at_lowest(self) -> str:
        """` with 1 in flight` where other concurrencies were measured, too; else nothing."""
        few, *more = self.concurrencies or [0]
        return f" with {few} in flight" if more else ""

    def is_filled(self, concurrency: int) -> bool:
        """Whether the prompts were enough to keep so many in flight; True if nobody knows."""
        return not self._mean_in_flight(concurrency) < FILLED_SHARE * concurrency

    def in_flight(self, concurrency: int) -> str:
        """`8 in flight`; with the mean beside it where the prompts did not fill that."""
        if self.is_filled(concurrency):
            return f"{concurrency} in flight"
        mean = self._mean_in_flight(concurrency)
        return f"{concurrency} asked for and {mean:.1f} in flight on average"

    def _mean_in_flight(self, concurrency: int) -> float:
        """Over the cells that succeeded; NaN without one that says it."""
        cells = self.tables["cells"]
        here = cells[(cells["concurrency"] == concurrency) & (cells["status"] == Status.OK)]
        return float(here["mean_in_flight"].mean())

    @property
    def asks_original(self) -> bool:
        """Whether the three original prompts belong to the run."""
        return any(w.workload_class == "original" for w in self.config.workloads.values())

    def overall(self, server: str, concurrency: int | None = None) -> pd.Series | None:
        """The server's pooled figures at a concurrency (the lowest); None if it has none."""
        frame = _at(self.tables["overall"], concurrency)
        found = frame[(frame["server"] == server) & frame["tok_per_s"].notna()]
        return None if found.empty else found.iloc[0]

    def comparisons(
        self, relation: str, workload_class: str = POOLED, concurrency: int | None = None
    ) -> pd.DataFrame:
        """Comparisons of one relation and class at a concurrency (the lowest)."""
        frame = _at(self.tables["comparisons"], concurrency)
        return frame[(frame["relation"] == relation) & (frame["workload_class"] == workload_class)]

    def comparison(self, candidate: str, relation: str) -> pd.Series | None:
        """The candidate's pooled comparison in a relation; None if there is none."""
        frame = self.comparisons(relation)
        found = frame[frame["candidate"] == candidate]
        return None if found.empty else found.iloc[0]

    def comparison_of(
        self, pair: pd.Series, workload_class: str, concurrency: int | None = None
    ) -> pd.Series | None:
        """The comparison of the same pair in a class, at a concurrency (the lowest), if any."""
        frame = self.comparisons(pair["relation"], workload_class, concurrency)
        same = (frame["candidate"] == pair["candidate"]) & (frame["reference"] == pair["reference"])
        return frame[same].iloc[0] if same.any() else None

    def reason(self, server: str, workload_class: str | None = None) -> str:
        """Why a server has no figures (in a class): the first failure, in words."""
        cells = self.tables["cells"]
        mine = cells[(cells["server"] == server) & (cells["status"] != Status.OK)]
        if workload_class is not None:
            mine = mine[mine["workload_class"] == workload_class]
        own = mine[mine["status"] != Status.NOT_RUN]["sentence"]
        launches = self.failures("launch")
        final = launches[(launches["server"] == server) & (launches["final"] == "true")]
        launch = final["sentence"]
        for sentences in (own, launch, mine["sentence"]):
            if len(sentences):
                return str(sentences.iloc[0])
        return "not measured"

    def faulty(self, server: str) -> bool:
        """Whether its answers are faulty: it keeps its numbers, not its rank."""
        greedy, drawn = (
            frame[frame["server"] == server]["verdict"]
            for frame in (self.tables["lossless"], self.tables["draws"])
        )
        # the baseline's row tests one half of its own draws against the other
        samples_wrongly = server != self.config.analysis.baseline and (drawn == "differs").any()
        return bool(samples_wrongly or (greedy == "faulty").any())

    def failures(self, level: str) -> pd.DataFrame:
        """Failures of one level: launch, cell or request."""
        frame = self.tables["failures"]
        return frame[frame["level"] == level]

    def trees(self) -> Iterator[str]:
        """Servers that verify trees."""
        return (name for name, s in self.config.servers.items() if s.algorithm == "DDTREE")


def _at(frame: pd.DataFrame, concurrency: int | None) -> pd.DataFrame:
    """The rows of a concurrency, by default of the lowest that was measured."""
    if concurrency is None:
        return lowest_concurrency(frame)
    rows: pd.DataFrame = frame[frame["concurrency"] == concurrency]
    return rows


def column(table: str, name: str) -> Column:
    """A column of the catalogue."""
    return TABLES[table].column(name)


def ratio_with_interval(row: pd.Series) -> str:
    """A speed-up in words: `1.08 [1.05, 1.11]`; without an interval it says so."""
    show = column("comparisons", "speedup").show
    if show(row["speedup_low"]) == show(None):
        return f"{show(row['speedup'])} (no interval)"
    return f"{show(row['speedup'])} [{show(row['speedup_low'])}, {show(row['speedup_high'])}]"
