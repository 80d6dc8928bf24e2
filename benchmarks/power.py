"""What the verdicts are worth: simulated servers with known speed-ups, judged like any other.

Draws the seconds per token of whole runs (drift of the machine, launches that differ, heavy-tailed
noise, one throttled launch a run) and sends them through the code that makes the table of
comparisons; in the adaptive setting that code also ends the rounds. Writes benchmarks/power.json,
which the report reads, and the table in docs/method.md.

    PYTHONPATH=src python benchmarks/power.py [--only small full adaptive noisy-2 noisy-4 noisy-8]
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator

from ddtree_bench.columns import CLASSES as CLASSES_TABLE
from ddtree_bench.columns import OVERALL
from ddtree_bench.config import CLASSES, Config
from ddtree_bench.config.protocol import Adaptive
from ddtree_bench.rounds.adaptive import last_decisive, widest_interval
from ddtree_bench.rounds.schedule import schedule_of
from ddtree_bench.stats.interval import FloatArray
from ddtree_bench.stats.proportion import wilson
from ddtree_bench.tables.comparisons import Comparisons
from ddtree_bench.tables.panel import Panel
from ddtree_bench.tables.rounds import Rounds
from ddtree_bench.tables.rows import frame_of

RUNS, CHUNK = 1000, 50
SEED = 20261130
SPEEDUPS = (0.98, 1.00, 1.02, 1.25)
"""True ones of the four candidates against plain decoding."""
NOISY_SPEEDUPS = (0.98, 1.00, 1.10, 1.20)
"""The same where launches are noisy."""
PROMPT, INTERACTION, LAUNCH, RESIDUAL = 0.3, 0.08, 0.01, 0.03
"""Standard deviations, log scale: prompts, prompts on one server, launches, the rest."""
NOISY_LAUNCH = 0.05
"""Standard deviation of launches on a shared or throttling machine."""
TAIL_DF = 3
"""Degrees of freedom of the rest: Student's t, whose outliers are many."""
DRIFT = 0.01
"""By how much the machine slows down from the first launch to the last, log scale, linear."""
THROTTLED = 1.5
"""Times slower is the one launch of each run that is throttled, and flagged so."""
FIGURES = Path(__file__).with_suffix(".json")
NOTHING = frame_of([], CLASSES_TABLE), frame_of([], OVERALL)
METHOD_PAGE = Path(__file__).parents[1] / "docs" / "method.md"
MARKS = ("<!-- power.json: begin -->\n", "<!-- power.json: end -->\n")


@dataclass(frozen=True, slots=True)
class Setting:
    """Size of a run."""

    name: str
    launches: int
    prompts: int
    """Of each class."""
    adaptive: Adaptive | None = None
    launch: float = LAUNCH
    """Standard deviation between launches, log scale."""
    speedups: tuple[float, ...] = SPEEDUPS

    @property
    def said(self) -> str:
        """Its size in words."""
        size = f"{self.prompts} prompts a class"
        if self.launch != LAUNCH:
            size += f", launches that differ by {100 * self.launch:g} %"
        if self.adaptive is None:
            return f"{self.launches} rounds, {size}"
        most, width = self.adaptive.max_launches, self.adaptive.width
        return f"{self.launches} to {most} rounds until {100 * width:g} % wide, {size}"


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("small", launches=2, prompts=4),
        Setting("full", launches=4, prompts=20),
        # three rounds are the least that any run has: two that decide and one more
        Setting("adaptive", 3, 20, Adaptive(max_launches=6, width=0.06)),
        *(
            Setting(f"noisy-{n}", n, 20, launch=NOISY_LAUNCH, speedups=NOISY_SPEEDUPS)
            for n in (2, 4, 8)
        ),
    )
}


@dataclass(slots=True)
class Tally:
    """What became of one true speed-up over all runs."""

    runs: int = 0
    intervals: int = 0
    held: int = 0
    rounds: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)

    def add(self, row: Mapping[str, object], truth: float, rounds: int) -> None:
        """Count a comparison."""
        low, high = row["speedup_low"], row["speedup_high"]
        assert isinstance(low, float)
        assert isinstance(high, float)
        self.runs += 1
        self.rounds += rounds
        self.intervals += low == low
        self.held += low <= truth <= high
        self.verdicts[str(row["verdict"])] += 1

    def shares(self) -> dict[str, object]:
        """Coverage with its own interval, and the share of each verdict."""
        sure = wilson(self.held, self.intervals, 0.95)
        return {
            "runs": self.runs,
            "coverage": self.held / self.intervals,
            "coverage_low": sure.low,
            "coverage_high": sure.high,
            "rounds": self.rounds / self.runs,
            "verdicts": {name: n / self.runs for name, n in sorted(self.verdicts.items())},
        }


def config_of(setting: Setting) -> Config:
    """Plain decoding and four candidates."""
    names = [f"s{speedup:.2f}" for speedup in setting.speedups]
    drafting = {"model": "m", "drafter": "d", "algorithm": "DFLASH", "block_size": 8}
    return Config.model_validate(
        {
            "run": "simulated",
            "servers": {"ar": {"model": "m"}, **dict.fromkeys(names, drafting)},
            "workloads": {name: {"class": name, "prompts": "p.jsonl"} for name in CLASSES},
            "protocol": {"launches": setting.launches, "adaptive": setting.adaptive},
        }
    )


def skeleton(config: Config, prompts: int) -> pd.DataFrame:
    """The rows of a run without its seconds: every server, launch, class and prompt."""
    launches = range(1, config.protocol.rounds + 1)
    rows = itertools.product(config.servers, launches, CLASSES, range(prompts))
    frame = pd.DataFrame(rows, columns=["server", "launch", "workload_class", "prompt"])
    units = frame["workload_class"] + "/" + frame["prompt"].astype(str)
    return frame.assign(concurrency=1, unit=units)


def cells_of(config: Config) -> pd.DataFrame:
    """The cells of a run in the order of its schedule, a minute apart."""
    rows = [
        (turn.server, turn.launch, name, 1, "ok", 60.0 * place)
        for place, turn in enumerate(schedule_of(config))
        for name in CLASSES
    ]
    columns = ["server", "launch", "workload_class", "concurrency", "status", "started_unix_s"]
    return pd.DataFrame(rows, columns=columns)


def drawn(
    config: Config, setting: Setting, throttled: tuple[str, int], rng: Generator
) -> FloatArray:
    """Seconds per token in the order of `skeleton`."""
    shape = (len(config.servers), config.protocol.rounds, len(CLASSES), setting.prompts)
    turns = schedule_of(config)
    order = list(config.servers)
    drift = np.zeros(shape[:2])
    for place, turn in enumerate(turns):
        drift[order.index(turn.server), turn.launch - 1] = DRIFT * place / (len(turns) - 1)
    logs = (
        -np.log([1.0, *setting.speedups])[:, None, None, None]
        + drift[:, :, None, None]
        + rng.normal(0, PROMPT, (1, 1, *shape[2:]))
        + rng.normal(0, INTERACTION, (shape[0], 1, *shape[2:]))
        + rng.normal(0, setting.launch, (*shape[:2], 1, 1))
        + rng.standard_t(TAIL_DF, shape) * RESIDUAL / np.sqrt(TAIL_DF / (TAIL_DF - 2))
    )
    server, launch = throttled
    logs[order.index(server), launch - 1] += np.log(THROTTLED)
    seconds: FloatArray = np.exp(logs).ravel()
    return seconds


@dataclass(frozen=True, slots=True)
class Simulated:
    """One run, drawn to its last round."""

    config: Config
    cells: pd.DataFrame
    units: pd.DataFrame
    throttled: tuple[str, int]

    def comparisons(self, rounds: int) -> pd.DataFrame:
        """The pooled comparisons of its first rounds, by the code that judges real ones."""
        cells, units = (frame[frame["launch"] <= rounds] for frame in (self.cells, self.units))
        server, launch = self.throttled
        kept = units[(units["server"] != server) | (units["launch"] != launch)]
        speeds, in_rounds = Panel(kept, "s_per_token"), Rounds(cells, {self.throttled})
        judge = Comparisons(self.config, cells, speeds, in_rounds)
        return judge.frame(*NOTHING, by_class=False)

    def rounds(self) -> int:
        """Rounds that are measured: all, or as many as `rounds.adaptive` asks for."""
        goal = self.config.protocol.adaptive
        if goal is None:
            return self.config.protocol.rounds
        for launch in range(self.config.protocol.launches + 1, self.config.protocol.rounds + 1):
            widest = widest_interval(self.comparisons(last_decisive(launch)))
            if widest is not None and widest <= goal.width:
                return launch - 1
        return self.config.protocol.rounds


def simulate(setting: Setting, chunk: int) -> dict[float, Tally]:
    """Judge `CHUNK` simulated runs, drawn by the chunk's own seed; a tally a true speed-up."""
    rng = np.random.default_rng([SEED, list(SETTINGS).index(setting.name), chunk])
    config = config_of(setting)
    frame, cells = skeleton(config, setting.prompts), cells_of(config)
    tallies = {speedup: Tally() for speedup in setting.speedups}
    candidates = [name for name in config.servers if name != "ar"]
    names = dict(zip(candidates, setting.speedups, strict=True))
    turns = schedule_of(config)
    for _ in range(CHUNK):
        turn = turns[rng.integers(len(turns))]
        throttled = (turn.server, turn.launch)
        units = frame.assign(s_per_token=drawn(config, setting, throttled, rng))
        run = Simulated(config, cells, units, throttled)
        rounds = run.rounds()
        for row in run.comparisons(rounds).to_dict("records"):
            truth = names[str(row["candidate"])]
            tallies[truth].add({str(key): value for key, value in row.items()}, truth, rounds)
    return tallies


def together(tallies: Iterable[Tally]) -> Tally:
    """The sums of several tallies."""
    total = Tally()
    for tally in tallies:
        for name in ("runs", "intervals", "held", "rounds"):
            setattr(total, name, getattr(total, name) + getattr(tally, name))
        total.verdicts.update(tally.verdicts)
    return total


def summary(setting: Setting) -> dict[str, object]:
    """The figures of one setting."""
    with ProcessPoolExecutor() as pool:
        chunks = list(pool.map(partial(simulate, setting), range(RUNS // CHUNK)))
    truths = setting.speedups
    tallies = {truth: together(chunk[truth] for chunk in chunks) for truth in truths}
    every = together(tallies.values())
    false = [tallies[truth] for truth in truths if truth <= 1]
    wrong = max((t.verdicts["faster"] + t.verdicts["faster_below_margin"]) / t.runs for t in false)
    return {
        "name": setting.name,
        "said": setting.said,
        "coverage": every.held / every.intervals,
        "false_faster": wrong,
        "by_speedup": {f"{truth:.2f}": tally.shares() for truth, tally in tallies.items()},
    }


def page(settings: Iterable[Mapping[str, Any]]) -> str:
    """The figures as Markdown."""
    head = "| run | true speed-up | interval holds it | faster | faster, below margin | equivalent "
    lines = [f"{head}| undecided | slower (either) |", "| --- " * 8 + "|"]
    for setting in settings:
        for truth, found in setting["by_speedup"].items():
            seen = found["verdicts"]
            slower = seen.get("slower", 0) + seen.get("slower_below_margin", 0)
            names = ("faster", "faster_below_margin", "equivalent", "undecided")
            shares = [found["coverage"], *(seen.get(name, 0) for name in names), slower]
            cells = " | ".join(f"{share:.1%}" for share in shares)
            lines.append(f"| {setting['said']} | {truth} | {cells} |")
    return "\n".join(lines) + "\n"


def known_figures() -> dict[str, Any]:
    """Settings of `power.json` by name, as they were last run."""
    if not FIGURES.exists():
        return {}
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    return {setting["name"]: setting for setting in figures["settings"]}


def main() -> None:
    """Run the settings asked for, write their figures beside those of the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    known = known_figures()
    for name in parser.parse_args().only:
        known[name] = summary(SETTINGS[name])
    settings = [known[name] for name in SETTINGS if name in known]
    noise = {
        "launch": LAUNCH, "noisy_launch": NOISY_LAUNCH, "interaction": INTERACTION,
        "residual": RESIDUAL, "tail_df": TAIL_DF, "drift": DRIFT, "throttled": THROTTLED,
    }  # fmt: skip
    figures = {"runs": RUNS, "seed": SEED, "level": 0.95, "noise": noise, "settings": settings}
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    table = page(settings)
    print(table)
    before, _, rest = METHOD_PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    METHOD_PAGE.write_text(f"{before}{MARKS[0]}{table}{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
