"""How often the 95 % interval of a speed-up holds the true one, by simulation.

Draws runs from the model of ddtree_bench.stats.compare with known effects: 5 servers, 2 launches, 5
classes. Prints a line a setting and writes benchmarks/coverage.json.

    PYTHONPATH=src python benchmarks/coverage.py
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator

from ddtree_bench.stats.compare import Blocks, launch_noise, speedup

RUNS = 2000
SERVERS, LAUNCHES, CLASSES = 5, 2, 5
LOG_SPEEDUP = 0.3
LEVEL = 0.95
SEED = 20261130


@dataclass(frozen=True, slots=True)
class Setting:
    """Standard deviations on the log scale, and prompts a class."""

    prompts: int
    interaction: float
    launch: float
    residual: float


SETTINGS = (
    Setting(prompts=4, interaction=0.10, launch=0.02, residual=0.02),
    Setting(prompts=4, interaction=0.10, launch=0.05, residual=0.02),
    Setting(prompts=4, interaction=0.02, launch=0.00, residual=0.05),
    Setting(prompts=10, interaction=0.10, launch=0.02, residual=0.02),
    Setting(prompts=20, interaction=0.10, launch=0.00, residual=0.02),
    Setting(prompts=20, interaction=0.10, launch=0.01, residual=0.02),
    Setting(prompts=20, interaction=0.10, launch=0.05, residual=0.02),
)


def simulate(setting: Setting, rng: Generator) -> list[Blocks]:
    """One run: the blocks of each server; server 1 is faster than server 0 by LOG_SPEEDUP."""
    n = setting.prompts
    prompt = rng.normal(0, 0.3, (CLASSES, 1, n))
    servers: list[Blocks] = []
    for server in range(SERVERS):
        values = (
            (-LOG_SPEEDUP if server == 1 else 0.0)
            + prompt
            + rng.normal(0, setting.interaction, (CLASSES, 1, n))
            + rng.normal(0, setting.launch, (1, LAUNCHES, 1))
            + rng.normal(0, setting.residual, (CLASSES, LAUNCHES, n))
        )
        servers.append(list(values))
    return servers


def coverage(setting: Setting, rng: Generator) -> float:
    """Share of runs whose interval holds the true speed-up."""
    truth = np.exp(LOG_SPEEDUP)
    held = 0
    for _ in range(RUNS):
        servers = simulate(setting, rng)
        interval = speedup(servers[0], servers[1], launch_noise(servers)).interval(LEVEL)
        held += interval.low <= truth <= interval.high
    return held / RUNS


def main() -> None:
    """Run every setting and write the shares."""
    rng = np.random.default_rng(SEED)
    rows = [{**asdict(setting), "coverage": coverage(setting, rng)} for setting in SETTINGS]
    for row in rows:
        print(" ".join(f"{name}={value:g}" for name, value in row.items()))
    text = json.dumps({"runs": RUNS, "seed": SEED, "level": LEVEL, "settings": rows}, indent=1)
    Path(__file__).with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
