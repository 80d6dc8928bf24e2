import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SOURCE = Path(__file__).parents[3] / "benchmarks" / "power.py"


@pytest.fixture(scope="module")
def power() -> ModuleType:
    spec = importlib.util.spec_from_file_location("power", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["power"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_simulated_runs_are_judged_as_real_ones(
    power: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty seeded runs: each true speed-up has its verdicts, a large one is always seen."""
    setting = power.Setting("tiny", launches=2, prompts=6)
    monkeypatch.setitem(power.SETTINGS, setting.name, setting)
    monkeypatch.setattr(power, "CHUNK", 20)
    tallies = power.simulate(setting, chunk=0)
    assert {truth: tally.runs for truth, tally in tallies.items()} == dict.fromkeys(
        power.SPEEDUPS, 20
    )
    assert tallies[1.25].verdicts == {"faster": 20}
    assert tallies[1.00].verdicts["undecided"] >= 15


def test_every_server_drifts_as_much_over_mirrored_rounds(
    power: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise, a linear drift cancels: the mean logarithm over two rounds is the truth."""
    for name in ("PROMPT", "INTERACTION", "RESIDUAL"):
        monkeypatch.setattr(power, name, 0.0)
    monkeypatch.setattr(power, "THROTTLED", 1.0)
    setting = power.Setting("tiny", launches=2, prompts=1, launch=0.0)
    config = power.config_of(setting)
    seconds = power.drawn(config, setting, ("ar", 1), np.random.default_rng(1))
    levels = np.log(seconds).reshape(5, -1).mean(axis=1)
    assert np.exp(levels[0] - levels[1:]) == pytest.approx(power.SPEEDUPS)


def test_shares_of_a_tally(power: ModuleType) -> None:
    """Four comparisons, one of whose intervals misses the truth."""
    tally = power.Tally()
    for low, verdict in ((0.9, "faster"), (0.9, "faster"), (0.9, "undecided"), (1.1, "undecided")):
        tally.add({"speedup_low": low, "speedup_high": 1.2, "verdict": verdict}, 1.0, 2)
    shares = tally.shares()
    assert shares["coverage"] == 0.75
    assert shares["rounds"] == 2
    assert shares["verdicts"] == {"faster": 0.5, "undecided": 0.5}


def test_the_page_shows_the_figures_of_the_last_run(power: ModuleType) -> None:
    """The table in docs/method.md is made of power.json, with every setting of the program."""
    figures = power.known_figures()
    assert list(figures) == list(power.SETTINGS)
    table = power.page(figures.values())
    assert power.MARKS[0] + table + power.MARKS[1] in power.METHOD_PAGE.read_text(encoding="utf-8")


def test_power_grows_with_noisy_launches(power: ModuleType) -> None:
    """More launches find a true speed-up more often, never less."""
    figures = power.known_figures()
    for truth in ("1.10", "1.20"):
        shares = [
            figures[f"noisy-{n}"]["by_speedup"][truth]["verdicts"].get("faster", 0)
            for n in (2, 4, 8)
        ]
        assert shares == sorted(shares)
        assert shares[-1] > 0.5
