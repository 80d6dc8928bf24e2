"""Speed-ups with prompts and launches as crossed random effects.

Model, on the log scale, y = ln(seconds per token), for server s, launch l, prompt p of class c:

    y[s, l, p] = μ[s] + a[p] + b[s, p] + u[s, l] + e[s, l, p]

a: what a prompt does to all servers; b: what it does to one; u: what a launch does to all its
prompts (variance τ²); e: the residual (σ²). Repeats of a prompt within a launch are averaged first.

Effect of candidate A against reference B, over C classes of n_c prompts each, both measured in the
same L launches and on the same prompts; ȳ is the mean over launches:

    d[p] = ȳ[B, p] − ȳ[A, p]            δ = (1/C) Σ_c mean of d[p] over c's prompts

A class weighs the same whatever its number of prompts. exp(δ) is the speed-up.

    Var δ = (1/C²) Σ_c s_c² / n_c                 prompts
          + τ² (1/L_A + 1/L_B)                    launches

s_c² is the sample variance of d in class c; launches cancel within it, and it holds b and e. τ²
comes from the spread of launch means m[s, l] within servers, pooled over *all* servers of the run,
as two launches of one pair tell next to nothing:

    S² = Σ_s Σ_l (m[s, l] − m̄[s])² ÷ Σ_s (L_s − 1),    E S² = τ² + R,    R = (1/C²) Σ_c σ_c² / n_c
    τ² = max(0, S² − R)

R is the residual's part of a launch mean. s_c² holds it already, so leaving it in S² would count it
twice. σ_c² is the interaction of launch and prompt within servers, pooled likewise.

Intervals are δ ± t √Var with Satterthwaite's degrees of freedom for the combination of mean
squares, corrected for the squares of estimates with few of them (`combined_df`).
benchmarks/coverage.py shows that they cover. A percentile bootstrap over launches does not, with
few of them: two launches resampled give one launch half of the time.

The same formulas with one side give the interval of a server's own level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.distributions import (
    even_split_p_value,
    normal_half_width,
    t_half_width,
    t_p_value,
)
from ddtree_bench.stats.interval import FloatArray, Interval
from ddtree_bench.stats.summary import class_mean

Blocks = Sequence[FloatArray]
"""One server's logarithms: an array `[L, n_c]` a class, the same launches in each."""


@dataclass(frozen=True, slots=True)
class MeanSquare:
    """A variance estimate and its degrees of freedom."""

    value: float
    df: float

    @property
    def spread(self) -> float:
        """Its term in the denominator of `combined_df`."""
        return 0.0 if self.df == 0 else self.value**2 / (self.df + 2)

    def times(self, factor: float) -> MeanSquare:
        """The same estimate of a variance `factor` times as large."""
        return MeanSquare(self.value * factor, self.df)


def combined_df(total: float, parts: Sequence[MeanSquare]) -> float:
    """Satterthwaite's degrees of freedom of `total`, a combination of these estimates.

    total² ÷ Σ value² ÷ (df + 2) − 2, at least 1. The square of an estimate with few degrees of
    freedom is too large by (df + 2) ÷ df on average; put in as it is, as in the plain formula, it
    gives 10 in place of 15 for five classes of four prompts, and intervals that are too wide.
    """
    spread = sum(part.spread for part in parts)
    return max(1.0, total**2 / spread - 2) if spread > 0 else np.inf


@dataclass(frozen=True, slots=True)
class LaunchNoise:
    """How much launches of one server differ, pooled over a run's servers; log scale."""

    launch_means: MeanSquare
    """S² of the module's text."""
    residual: MeanSquare
    """R: the part of S² that prompts' own noise makes."""

    @property
    def variance(self) -> float:
        """τ², at least 0."""
        return max(0.0, self.launch_means.value - self.residual.value)

    @property
    def floor(self) -> float:
        """A/A floor: the ratio that 95 % of pairs of single launches of one server stay within.

        exp(1.96 √2 S). It tells how noisy launches are, however many there were: a largest ratio
        would grow with them.
        """
        return float(np.exp(normal_half_width(0.95) * np.sqrt(2 * self.launch_means.value)))

    def resized(self, more_df: float, prompts: float) -> LaunchNoise:
        """The same noise, with so many times the degrees of freedom between launches, and prompts.

        More prompts average more of the residual out of launch means; τ² stays.
        """
        of_prompts = min(self.residual.value, self.launch_means.value)
        means = self.launch_means.value - of_prompts * (1 - 1 / prompts)
        return LaunchNoise(
            MeanSquare(means, self.launch_means.df * more_df),
            MeanSquare(self.residual.value / prompts, self.residual.df * more_df * prompts),
        )


@dataclass(frozen=True, slots=True)
class Effect:
    """An estimate on the log scale with the parts of its variance."""

    log_value: float
    prompts: tuple[MeanSquare, ...]
    """Each class's part of the variance."""
    noise: LaunchNoise
    launches: tuple[float, ...]
    """Averaged over on each side: one number, or two for a difference."""
    n_prompts: int

    @property
    def value(self) -> float:
        """The estimate itself: a ratio, or a server's level."""
        return float(np.exp(self.log_value))

    @property
    def prompt_variance(self) -> float:
        """The part of the variance that more prompts would lower."""
        return sum(part.value for part in self.prompts)

    @property
    def launch_variance(self) -> float:
        """The part of the variance that more launches would lower."""
        return self.noise.variance * self._per_launch

    @property
    def standard_error(self) -> float:
        """Of `log_value`."""
        return float(np.sqrt(self.prompt_variance + self.launch_variance))

    @property
    def df(self) -> float:
        """Satterthwaite's degrees of freedom of the variance."""
        share = self._per_launch
        noise = (self.noise.launch_means.times(share), self.noise.residual.times(share))
        return combined_df(self.prompt_variance + self.launch_variance, (*self.prompts, *noise))

    @property
    def _per_launch(self) -> float:
        return sum(1 / launches for launches in self.launches)

    def interval(self, level: float) -> Interval:
        """Confidence interval of `value`."""
        half = t_half_width(level, self.df) * self.standard_error
        low, high = np.exp([self.log_value - half, self.log_value + half])
        return Interval(float(low), float(high), level, self.n_prompts)

    def p_value(self) -> float:
        """Two-sided, of the hypothesis that `log_value` is 0."""
        if self.standard_error == 0:
            return 1.0 if self.log_value == 0 else 0.0
        return t_p_value(self.log_value / self.standard_error, self.df)

    def resized(self, launches: float = 1, prompts: float = 1) -> Effect:
        """The same estimate and components of variance, from a larger run.

        Args:
            launches: so many times as many of each server.
            prompts: so many times as many of each class.
        """
        factor = self._shrunk(launches) / prompts
        return Effect(
            self.log_value,
            tuple(
                MeanSquare(part.value * factor, (part.df + 1) * prompts - 1)
                for part in self.prompts
            ),
            self.noise.resized(_more_df(min(self.launches), launches), prompts),
            tuple(each * launches for each in self.launches),
            round(self.n_prompts * prompts),
        )

    def _shrunk(self, launches: float) -> float:
        """What is left of the prompts' variance when launches average more of the residual out."""
        if self.prompt_variance == 0:
            return 1.0
        residual = min(self.noise.residual.value * self._per_launch, self.prompt_variance)
        return 1 - residual / self.prompt_variance * (1 - 1 / launches)


def _more_df(launches: float, times: float) -> float:
    """By how much the degrees of freedom between launches grow; a pair may lack some of its own."""
    known = max(launches, 2)
    return (known * times - 1) / (known - 1)


def launch_means(blocks: Blocks) -> FloatArray:
    """A server's mean in each launch `[L]`, each class weighing the same."""
    _need_launches(blocks, 1)
    means: FloatArray = np.mean([block.mean(axis=1) for block in blocks], axis=0)
    return means


def launch_noise(servers: Sequence[Blocks]) -> LaunchNoise:
    """The variance between launches, pooled over all servers measured more than once.

    Args:
        servers: the blocks of each server, the same classes in the same order.

    Raises:
        NotEnoughData: no server has two launches.
    """
    repeated = [blocks for blocks in servers if blocks and len(blocks[0]) > 1]
    if not repeated:
        most = max((len(blocks[0]) for blocks in servers if blocks), default=0)
        raise NotEnoughData(most, 2, "launches of a server")
    dfs = np.array([len(blocks[0]) - 1 for blocks in repeated])
    squares = [float(np.var(launch_means(blocks))) * len(blocks[0]) for blocks in repeated]
    mean_square = MeanSquare(sum(squares) / float(dfs.sum()), float(dfs.sum()))
    return LaunchNoise(mean_square, _residual(repeated, dfs))


def _residual(servers: Sequence[Blocks], dfs: FloatArray) -> MeanSquare:
    """R: what the interaction of launch and prompt adds to a launch mean's mean square."""
    n_classes = len(servers[0])
    parts = []
    for index in range(n_classes):
        blocks = [server[index] for server in servers]
        df = sum((block.shape[0] - 1) * (block.shape[1] - 1) for block in blocks)
        if df == 0:  # one prompt: its noise cannot be told from its launch's and stays in there
            continue
        variance = sum(_interaction_squares(block) for block in blocks) / df
        share = np.average([1 / block.shape[1] for block in blocks], weights=dfs) / n_classes**2
        parts.append(MeanSquare(variance * float(share), df))
    return _combined(parts)


def _interaction_squares(block: FloatArray) -> float:
    """Sum of squares of what neither a launch's nor a prompt's mean explains."""
    centred = block - block.mean(axis=0) - block.mean(axis=1, keepdims=True) + block.mean()
    return float(np.sum(centred**2))


def _combined(parts: Sequence[MeanSquare]) -> MeanSquare:
    """The sum of independent estimates, with Satterthwaite's degrees of freedom."""
    total = sum(part.value for part in parts)
    return MeanSquare(total, combined_df(total, parts))


def mean_effect(
    per_prompt: Sequence[FloatArray], n_launches: Sequence[int], noise: LaunchNoise
) -> Effect:
    """The mean over classes of the mean over prompts, with its variance.

    Args:
        per_prompt: `[n_c]` a class; values averaged over launches, log scale.
        n_launches: launches averaged over on each side: one number, or two for a difference.
        noise: of these classes.

    Raises:
        NotEnoughData: a class has fewer than two prompts.
    """
    fewest = min((len(values) for values in per_prompt), default=0)
    if fewest < 2:
        raise NotEnoughData(fewest, 2, "prompts of a class")
    weight = 1 / len(per_prompt) ** 2
    parts = [
        MeanSquare(float(np.var(values, ddof=1)) / len(values) * weight, len(values) - 1)
        for values in per_prompt
    ]
    return Effect(
        log_value=class_mean(per_prompt),
        prompts=tuple(parts),
        noise=noise,
        launches=tuple(n_launches),
        n_prompts=sum(len(values) for values in per_prompt),
    )


def prompt_differences(reference: Blocks, candidate: Blocks) -> list[FloatArray]:
    """d[p] of each class `[n_c]`: above 0 where the candidate needs less time.

    Raises ValueError unless both sides hold the same launches and prompts.
    """
    shapes = [[block.shape for block in side] for side in (reference, candidate)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"both sides need the same launches and prompts, got {shapes}")
    return [
        (first - second).mean(axis=0) for first, second in zip(reference, candidate, strict=True)
    ]


def speedup(reference: Blocks, candidate: Blocks, noise: LaunchNoise) -> Effect:
    """The candidate's speed-up over the reference, launch l and prompt p paired.

    Raises:
        NotEnoughData: a class has fewer than two prompts.
        ValueError: the sides do not hold the same launches and prompts.
    """
    differences = prompt_differences(reference, candidate)
    launches = len(reference[0])
    return mean_effect(differences, (launches, launches), noise)


def level(blocks: Blocks, noise: LaunchNoise) -> Effect:
    """A server's own geometric mean, classes weighing the same.

    Raises NotEnoughData if a class has fewer than two prompts.
    """
    return mean_effect([block.mean(axis=0) for block in blocks], (len(blocks[0]),), noise)


@dataclass(frozen=True, slots=True)
class SignTest:
    """Prompts won, tied and lost, and how likely so uneven a split is by chance."""

    wins: int
    ties: int
    losses: int
    p_value: float


def sign_test(differences: FloatArray, tie: float = 0.0) -> SignTest:
    """Two-sided sign test of `differences` `[n]`; a tie is within ± `tie` and does not count.

    Raises NotEnoughData without differences. All ties give p = 1.
    """
    if len(differences) == 0:
        raise NotEnoughData(0, 1, "prompts")
    wins = int(np.sum(differences > tie))
    losses = int(np.sum(differences < -tie))
    p_value = even_split_p_value(wins, wins + losses)
    return SignTest(wins, len(differences) - wins - losses, losses, p_value)


def holm(p_values: FloatArray) -> FloatArray:
    """Holm's adjusted p-values, in the order given; they hold for all tests of the family."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    stepped = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    adjusted = np.empty(len(p_values))
    adjusted[order] = stepped
    return adjusted


def _need_launches(blocks: Blocks, need: int) -> None:
    if not blocks:
        raise NotEnoughData(0, 1, "classes")
    launches = [len(block) for block in blocks]
    if any(first != second for first, second in pairwise(launches)):
        raise ValueError(f"all classes need the same launches, got {launches}")
    if launches[0] < need:
        raise NotEnoughData(launches[0], need, "launches")
