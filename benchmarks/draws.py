"""What the test of drawn answers finds, and what it leaves alone: samplers of known faults.

A made-up target gives every prefix a distribution of the next token that falls off as Zipf's law
does, and a drafter distorts it. Right samplers and samplers with known faults of speculative
decoding draw answers to each prompt, and the table of draws judges them against plain sampling.
Nothing here comes from a model. Writes benchmarks/draws.json.

    PYTHONPATH=src python benchmarks/draws.py [--draws 100 200 400]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.compare import holm
from ddtree_bench.stats.draws import Draw, Homogeneity, same_distribution
from ddtree_bench.stats.interval import FloatArray

SEED = 20261130
ALPHA = 0.05
TOKENS = 5
VOCABULARY = 40
PROMPTS = 5
"""Of a run; Holm's correction is over them and all of them together, as in the table of draws."""
DRAWS = (100, 200, 400)
RIGHT_RUNS, WRONG_RUNS = 300, 60


class Model:
    """Distributions of the next token after each prefix of one prompt, target's and drafter's.

    The first token is nearly certain, as after the prompts of `drawn.jsonl`.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: dict[tuple[int, ...], tuple[FloatArray, FloatArray]] = {}

    def after(self, prefix: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Target and drafter, each `[VOCABULARY]`."""
        if prefix not in self._known:
            rng = np.random.default_rng([self._seed, *prefix])
            steep = 5.0 if not prefix else rng.uniform(1.0, 2.5)
            target = np.arange(1, VOCABULARY + 1) ** -steep
            drafter = target * rng.lognormal(0, 0.7, VOCABULARY)
            order = rng.permutation(VOCABULARY)
            both = (target / target.sum())[order], (drafter / drafter.sum())[order]
            self._known[prefix] = both
        return self._known[prefix]


MODELS = tuple(Model(prompt) for prompt in range(PROMPTS))

Tokens = NDArray[np.int64]
NextTokens = Callable[[FloatArray, FloatArray, int, Generator], Tokens]
"""Takes target and drafter `[VOCABULARY]` and a number of draws; returns so many tokens."""


def plain(target: FloatArray, drafter: FloatArray, n: int, rng: Generator) -> Tokens:
    """Sampling from the target."""
    return rng.choice(VOCABULARY, n, p=target)


def rejection(target: FloatArray, drafter: FloatArray, n: int, rng: Generator) -> Tokens:
    """A draft is accepted with min(1, p ÷ q), else drawn from what is left of the target."""
    return _verified(target, drafter, _left(target, drafter), 1.0, n, rng)


def no_residual(target: FloatArray, drafter: FloatArray, n: int, rng: Generator) -> Tokens:
    """After a refusal the target itself is drawn from."""
    return _verified(target, drafter, target, 1.0, n, rng)


def lenient(target: FloatArray, drafter: FloatArray, n: int, rng: Generator) -> Tokens:
    """Drafts are accepted with min(1, 2 p ÷ q)."""
    return _verified(target, drafter, _left(target, drafter), 2.0, n, rng)


def colder(target: FloatArray, drafter: FloatArray, n: int, rng: Generator) -> Tokens:
    """The temperature is 0.8 in place of 1."""
    sharp = target ** (1 / 0.8)
    return rng.choice(VOCABULARY, n, p=sharp / sharp.sum())


def top_five(target: FloatArray, drafter: FloatArray, n: int, rng: Generator) -> Tokens:
    """All but the five most probable tokens are cut off."""
    kept = np.where(target >= np.sort(target)[-5], target, 0)
    return rng.choice(VOCABULARY, n, p=kept / kept.sum())


def greedy(target: FloatArray, drafter: FloatArray, n: int, rng: Generator) -> Tokens:
    """The most probable token."""
    return np.full(n, target.argmax())


RIGHT: tuple[NextTokens, ...] = (plain, rejection)
WRONG: tuple[NextTokens, ...] = (no_residual, lenient, colder, top_five, greedy)


def _left(target: FloatArray, drafter: FloatArray) -> FloatArray:
    left = np.maximum(target - drafter, 0)
    return left / left.sum()


def _verified(
    target: FloatArray,
    drafter: FloatArray,
    refused: FloatArray,
    lenience: float,
    n: int,
    rng: Generator,
) -> Tokens:
    draft = rng.choice(VOCABULARY, n, p=drafter)
    accepted = rng.random(n) * drafter[draft] < lenience * target[draft]
    return np.where(accepted, draft, rng.choice(VOCABULARY, n, p=refused))


def drawn(model: Model, sampler: NextTokens, draws: int, rng: Generator) -> list[Draw]:
    """Answers of `TOKENS` tokens; the first comes from prefill, which is never at fault."""
    reached = Counter({(): draws})
    for place in range(TOKENS):
        step = plain if place == 0 else sampler
        longer: Counter[tuple[int, ...]] = Counter()
        for prefix, n in reached.items():
            tokens = step(*model.after(prefix), n, rng)
            longer.update((*prefix, token) for token in tokens.tolist())
        reached = longer
    return list(reached.elements())


def is_told(sampler: NextTokens, draws: int, rng: Generator) -> bool:
    """Whether one run of this sampler differs from plain sampling by the table's rule."""
    found: list[Homogeneity] = []
    for model in MODELS:
        sides = [drawn(model, each, draws, rng) for each in (plain, sampler)]
        try:
            found.append(same_distribution(*sides))
        except NotEnoughData:
            continue
    p_values = [each.p_value for each in (*found, _added(found))] if found else [1.0]
    return bool(holm(np.array(p_values)).min() < ALPHA)


def _added(found: Sequence[Homogeneity]) -> Homogeneity:
    sums = [sum(column) for column in zip(*(asdict(each).values() for each in found), strict=True)]
    return Homogeneity(sums[0], int(sums[1]), int(sums[2]), int(sums[3]))


def figures_of(draws: int) -> dict[str, float]:
    """Share of runs told, by sampler; two minutes or so for each 200 draws."""
    rng = np.random.default_rng([SEED, draws])
    return {
        sampler.__name__: sum(is_told(sampler, draws, rng) for _ in range(runs)) / runs
        for samplers, runs in ((RIGHT, RIGHT_RUNS), (WRONG, WRONG_RUNS))
        for sampler in samplers
    }


def main() -> None:
    """Run the settings asked for and write their shares beside those known before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, nargs="+", default=DRAWS, help="of each prompt")
    path = Path(__file__).with_suffix(".json")
    known = json.loads(path.read_text(encoding="utf-8"))["by_draws"] if path.exists() else {}
    for draws in parser.parse_args().draws:
        known[str(draws)] = figures_of(draws)
        print(draws, known[str(draws)], flush=True)
    figures = {"right_runs": RIGHT_RUNS, "wrong_runs": WRONG_RUNS, "seed": SEED, "alpha": ALPHA,
               "prompts": PROMPTS, "tokens": TOKENS, "by_draws": known}  # fmt: skip
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
