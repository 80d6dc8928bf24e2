"""Tables of pooled figures: classes, overall, cost, original."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ddtree_bench.columns import CLASSES as CLASSES_TABLE
from ddtree_bench.columns import COST, LOAD, ORIGINAL, OVERALL
from ddtree_bench.config import CLASSES, Config
from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.acceptance import acceptance_length
from ddtree_bench.stats.compare import level
from ddtree_bench.stats.summary import class_mean, geometric_mean
from ddtree_bench.status import Status
from ddtree_bench.tables.panel import Panel
from ddtree_bench.tables.rows import Value, frame_of, grouped

KEY = ["server", "workload_class", "concurrency"]
CELL = ["server", "launch", "workload", "workload_class", "concurrency", "repeat"]
_MEDIANS = {
    "decode_tok_per_s": "decode_tok_per_s",
    "ttft_p50_s": "ttft_s",
    "tpot_p50_s": "tpot_s",
    "burst_gap_p50_s": "burst_gap_s",
    "end_p50_s": "end_s",
}
_GEOMETRIC = (*_MEDIANS, "tok_per_s_of_totals", "acceptance_length", "step_time_s")
_SUMS = ("n_requests", "checks", "checks_valid", "failed_requests")


@dataclass(frozen=True, slots=True)
class Level:
    """A server's pooled value with its interval, where there is enough for one."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n_prompts: int = 0
    n_launches: int = 0

    def inverted(self) -> Level:
        """The level of the inverse value: speed from seconds per token."""
        value, low, high = (
            None if number is None else 1 / number for number in (self.value, self.high, self.low)
        )
        return Level(value, low, high, self.n_prompts, self.n_launches)


def level_of(
    panel: Panel, server: str, classes: Sequence[str], concurrency: int, confidence: float
) -> Level:
    """A server's own level over these classes; empty if it was not measured."""
    try:
        matched = panel.matched([server], classes, concurrency)
    except NotEnoughData:
        return Level()
    blocks, n_launches = matched.blocks[0], len(matched.launches)
    try:
        effect = level(blocks, panel.noise(classes, concurrency))
    except NotEnoughData:
        point = float(np.exp(class_mean([block.mean(axis=0) for block in blocks])))
        return Level(point, n_prompts=matched.n_prompts, n_launches=n_launches)
    interval = effect.interval(confidence)
    return Level(effect.value, interval.low, interval.high, matched.n_prompts, n_launches)


class PooledTables:
    """Classes, overall, cost and original, from the raw tables of a run."""

    def __init__(
        self, config: Config, requests: pd.DataFrame, cells: pd.DataFrame, speeds: Panel
    ) -> None:
        """Take raw tables and the panel of seconds per token."""
        self._config = config
        self._confidence = config.analysis.confidence
        self._speeds = speeds
        self._sound = cells[(cells["status"] == Status.OK.value) & (cells["failed_requests"] == 0)]
        self._requests = requests.merge(self._sound[CELL], on=CELL)
        named = self._requests.assign(
            unit=self._requests["workload"] + "/" + self._requests["prompt_id"]
        )
        self._steps = Panel(named, "step_time_s")
        self._drafting = Panel(named, "draft_time_s")
        self._failed = requests[requests["status"] != Status.OK.value].groupby(KEY).size().to_dict()
        self._keys = [tuple(key) for key in cells[KEY].drop_duplicates().to_numpy()]

    @property
    def requests(self) -> pd.DataFrame:
        """The requests that enter statistics."""
        return self._requests

    @property
    def sound_cells(self) -> pd.DataFrame:
        """The cells that enter statistics."""
        return self._sound

    def classes(self) -> pd.DataFrame:
        """A row for every server, class and concurrency that has a cell, ok or not."""
        groups = grouped(self._requests, KEY)
        cells = grouped(self._sound, KEY)
        none = self._requests.iloc[:0], self._sound.iloc[:0]
        return frame_of(
            (
                self._class_row(key, groups.get(key, none[0]), cells.get(key, none[1]))
                for key in self._keys
            ),
            CLASSES_TABLE,
        )

    def _class_row(
        self, key: tuple[str, str, int], requests: pd.DataFrame, cells: pd.DataFrame
    ) -> Mapping[str, Value]:
        server, workload_class, concurrency = key
        where = (server, [workload_class], concurrency, self._confidence)
        speed = level_of(self._speeds, *where).inverted()
        seconds = cells["seconds"].sum()
        return {
            **dict(zip(KEY, key, strict=True)),
            **_speed_columns(speed),
            "n_requests": len(requests),
            "tok_per_s_of_totals": cells["completion_tokens"].sum() / seconds if seconds else None,
            **{name: median_of(requests[column]) for name, column in _MEDIANS.items()},
            "acceptance_length": acceptance_of(self._of_speed(key, requests)),
            "step_time_s": level_of(self._steps, *where).value,
            "checks": int(requests["check_valid"].notna().sum()),
            "checks_valid": int(requests["check_valid"].sum()),
            "length_share": length_share(requests),
            "failed_requests": self._failed.get(key, 0),
        }

    def _of_speed(self, key: tuple[str, str, int], requests: pd.DataFrame) -> pd.DataFrame:
        """Those of the requests whose prompts enter the speed: measured in every launch."""
        units = self._speeds.complete(*key)
        prompts = {unit.rpartition("/")[0] for unit in units}  # without the hash of what was asked
        return requests[(requests["workload"] + "/" + requests["prompt_id"]).isin(prompts)]

    def overall(self, classes: pd.DataFrame) -> pd.DataFrame:
        """The five classes pooled, each weighing the same, from the table of classes."""
        five = classes[classes["workload_class"].isin(CLASSES)]
        return frame_of(
            (
                self._overall_row(server, concurrency, group)
                for (server, concurrency), group in grouped(five, ["server", "concurrency"]).items()
            ),
            OVERALL,
        )

    def _overall_row(
        self, server: str, concurrency: int, group: pd.DataFrame
    ) -> Mapping[str, Value]:
        measured = group[group["tok_per_s"].notna()]
        names = [name for name in CLASSES if name in set(measured["workload_class"])]
        speed = level_of(self._speeds, server, names, concurrency, self._confidence).inverted()
        return {
            "server": server,
            "concurrency": concurrency,
            "n_classes": len(names),
            **_speed_columns(speed),
            **{name: geometric_of(measured[name]) for name in _GEOMETRIC},
            **{name: int(group[name].sum()) for name in _SUMS},
            "length_share": mean_of(measured["length_share"]),
        }

    def load(self, classes: pd.DataFrame) -> pd.DataFrame:
        """Each server at all concurrencies, the classes pooled that it has at every one of them."""
        five = classes[classes["workload_class"].isin(CLASSES)]
        return frame_of(
            (
                row
                for (server,), rows in grouped(five, ["server"]).items()
                for row in self._load_rows(server, rows[rows["tok_per_s"].notna()])
            ),
            LOAD,
        )

    def _load_rows(self, server: str, measured: pd.DataFrame) -> Iterator[Mapping[str, Value]]:
        levels = measured["concurrency"].nunique()
        counts = measured.groupby("workload_class")["concurrency"].nunique()
        names = [name for name in CLASSES if counts.get(name, 0) == levels > 1]
        kept = measured[measured["workload_class"].isin(names)]
        for (concurrency,), group in grouped(kept, ["concurrency"]).items():
            row = dict(self._overall_row(server, concurrency, group))
            del row["n_classes"]
            yield {**row, "classes": ", ".join(names)}

    def cost(self, overall: pd.DataFrame) -> pd.DataFrame:
        """What a step costs and yields, at each server's lowest concurrency."""
        lowest = overall.sort_values("concurrency", kind="stable").drop_duplicates("server")
        names = ["server", "concurrency", "acceptance_length", "tok_per_s"]
        rows = (self._cost_row(*values) for values in lowest[names].itertuples(index=False))
        return frame_of(rows, COST)

    def _cost_row(
        self, name: str, concurrency: int, acceptance: float, tok_per_s: float
    ) -> Mapping[str, Value]:
        server = self._config.servers[name]
        step = self._pooled_level(self._steps, name, concurrency)
        drafting = self._pooled_level(self._drafting, name, concurrency)
        plain = server.algorithm == "AR"
        return {
            "server": name,
            "concurrency": concurrency,
            "algorithm": server.algorithm,
            "verify_width": server.verify_width or self._seen_width(name),
            "block_size": server.block_size,
            "step_time_s": step.value,
            "step_time_low_s": step.low,
            "step_time_high_s": step.high,
            "draft_time_s": drafting.value,
            "draft_time_low_s": drafting.low,
            "draft_time_high_s": drafting.high,
            "draft_share": _part(drafting.value, step.value),
            "acceptance_length": 1.0 if plain else acceptance,
            "tok_per_s": tok_per_s,
        }

    def _pooled_level(self, panel: Panel, server: str, concurrency: int) -> Level:
        """A value's level over the classes in which it was measured."""
        classes = panel.shared_classes([server], concurrency)
        return level_of(panel, server, classes, concurrency, self._confidence)

    def _seen_width(self, server: str) -> int | None:
        """The width that most requests of a server had."""
        widths = self._requests.loc[self._requests["server"] == server, "verify_width"].mode()
        return None if widths.empty else int(widths.iloc[0])

    def original(self) -> pd.DataFrame:
        """The original notes' prompts by the notes' own formula."""
        rows = self._requests[self._requests["workload_class"] == "original"]
        return frame_of(_original_rows(rows), ORIGINAL)


def _original_rows(requests: pd.DataFrame) -> Iterator[Mapping[str, Value]]:
    for (server, prompt_id), group in grouped(requests, ["server", "prompt_id"]).items():
        speeds = group["tok_per_s"].dropna()
        yield {
            "server": server,
            "prompt_id": prompt_id,
            "n": len(speeds),
            "tok_per_s": mean_of(speeds),
            "tok_per_s_sd": float(speeds.std(ddof=1)) if len(speeds) > 1 else None,
            "completion_tokens": mean_of(group["completion_tokens"]),
        }


def _speed_columns(speed: Level) -> dict[str, Value]:
    return {
        "n_prompts": speed.n_prompts,
        "n_launches": speed.n_launches,
        "tok_per_s": speed.value,
        "tok_per_s_low": speed.low,
        "tok_per_s_high": speed.high,
    }


def acceptance_of(requests: pd.DataFrame) -> float | None:
    """Acceptance length over requests; None where nothing was drafted."""
    drafted = requests[requests["verify_steps"].notna()]
    steps = drafted["verify_steps"].to_numpy(dtype=np.int64)
    produced = drafted["accepted_drafts"].to_numpy(dtype=np.int64) + steps
    return acceptance_length(produced, steps) if steps.sum() > 0 else None


def _part(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None else part / whole


def length_share(requests: pd.DataFrame) -> float | None:
    """Share of the requests that the token limit ended."""
    known = requests["finish_reason"].dropna()
    return None if known.empty else float((known == "length").mean())


def median_of(values: pd.Series) -> float | None:
    """Median of the known values."""
    known = values.dropna()
    return None if known.empty else float(known.median())


def mean_of(values: pd.Series) -> float | None:
    """Mean of the known values."""
    known = values.dropna()
    return None if known.empty else float(known.mean())


def geometric_of(values: pd.Series) -> float | None:
    """Geometric mean of the known values."""
    known = values.dropna()
    return None if known.empty else geometric_mean(known.to_numpy(dtype=np.float64))
