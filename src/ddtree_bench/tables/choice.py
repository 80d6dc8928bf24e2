"""Choosing a configuration on some data and judging it on other data.

The best of many configurations looks better than it is: its luck was part of why it was chosen. So
the best tree and the best chain are picked on half of the prompts in the odd rounds and judged on
the other half in the even rounds, then the other way round. Both outcomes are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from ddtree_bench.columns import CHOICE
from ddtree_bench.config import Config
from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.compare import Effect, speedup
from ddtree_bench.stats.summary import class_mean
from ddtree_bench.tables.pairs import BASELINE, EQUAL_WIDTH, pairs_of
from ddtree_bench.tables.panel import Matched, Panel
from ddtree_bench.tables.rounds import Rounds
from ddtree_bench.tables.rows import Value, frame_of

LEAST_PROMPTS: Final = 20
"""Fewer in a half decide nothing."""
SPLITS: Final = (("first", 1), ("second", 0))
"""Name, and what is left of a picking round's number when it is divided by 2."""
_UNIT = ["concurrency", "workload_class", "unit"]


@dataclass(frozen=True, slots=True)
class Split:
    """One way to part the data: picked on one part, judged on the other."""

    name: str
    picking: Panel
    judging: Panel


class Choices:
    """Picks and judges, from the seconds per token of a run."""

    def __init__(self, config: Config, units: pd.DataFrame, speeds: Panel, rounds: Rounds) -> None:
        """Take the table of units with a column `unit`, the panel of all of it, and its rounds."""
        self._config = config
        self._speeds = speeds
        self._rounds = rounds
        self._concurrencies = sorted(set(units["concurrency"]))
        self._splits = list(_splits(units))

    def frame(self) -> pd.DataFrame:
        """The table: rows a split, or one that says why nothing was chosen."""
        return frame_of(
            (row for level in self._concurrencies for row in self._rows(int(level))), CHOICE
        )

    def _servers(self, algorithm: str) -> list[str]:
        servers = self._config.servers
        measured = self._speeds.servers
        return [n for n, s in servers.items() if s.algorithm == algorithm and n in measured]

    def _rows(self, concurrency: int) -> Iterator[Mapping[str, Value]]:
        trees, chains = self._servers("DDTREE"), self._servers("DFLASH")
        if not trees:
            return
        if len(trees) + len(chains) < 3:
            yield _no_choice(concurrency, "one tree and one chain at most: nothing to choose")
            return
        for split in self._splits:
            try:
                yield from self._split_rows(split, trees, chains, concurrency)
            except NotEnoughData as error:
                yield _no_choice(concurrency, f"no choice is made: {error}", split.name)

    def _split_rows(
        self, split: Split, trees: Sequence[str], chains: Sequence[str], concurrency: int
    ) -> Iterator[Mapping[str, Value]]:
        picked_on, best_tree = _best(split.picking, trees, concurrency)
        for tree in trees:
            alike = [name for name in chains if self._model(name) == self._model(tree)]
            best_chain = _best(split.picking, alike, concurrency)[1] if alike else None
            for relation, reference in self._opponents(tree, best_chain):
                found = self._judged(split, tree, reference, concurrency)
                yield {
                    "concurrency": concurrency,
                    "split": split.name,
                    "candidate": tree,
                    "picked": tree == best_tree,
                    "picked_on": picked_on.n_prompts,
                    "relation": relation,
                    "reference": reference,
                    **found,
                }

    def _model(self, server: str) -> str:
        return self._config.servers[server].model

    def _opponents(self, tree: str, best_chain: str | None) -> Iterator[tuple[str, str]]:
        """As in the table of comparisons, and the best chain."""
        for pair in pairs_of(self._config):
            if pair.candidate == tree and pair.relation in (BASELINE, EQUAL_WIDTH):
                yield pair.relation, pair.reference
        if best_chain is not None:
            yield "best chain", best_chain

    def _judged(
        self, split: Split, tree: str, reference: str, concurrency: int
    ) -> Mapping[str, Value]:
        pair = [tree, reference]
        classes = split.judging.shared_classes(pair, concurrency)
        rounds = self._rounds.interleaved(pair, classes, concurrency)
        matched = split.judging.matched(pair, classes, concurrency, rounds)
        _need(matched.n_prompts, "to judge")
        candidate, other = matched.blocks
        point = float(np.exp(class_mean([b.mean(axis=0) for b in other])))
        point /= float(np.exp(class_mean([b.mean(axis=0) for b in candidate])))
        values: dict[str, Value] = {
            "n_prompts": matched.n_prompts,
            "n_launches": len(matched.launches),
            "speedup": point,
            "speedup_low": None,
            "speedup_high": None,
            "detail": "",
        }
        try:
            noise = self._speeds.noise(classes, concurrency)
            effect: Effect = speedup(other, candidate, noise)
        except NotEnoughData as error:
            return {**values, "detail": f"no interval: {error}"}
        interval = effect.interval(self._config.analysis.confidence)
        return {**values, "speedup_low": interval.low, "speedup_high": interval.high}


def _splits(units: pd.DataFrame) -> Iterator[Split]:
    """Both ways to part the data; prompts of a class alternate in the order of their ids.

    At each concurrency by themselves: more in flight ask more prompts.
    """
    names = units[_UNIT].drop_duplicates().sort_values(_UNIT)
    halves = names.assign(half=names.groupby(_UNIT[:2]).cumcount() % 2)
    parted = units.merge(halves, on=_UNIT)
    odd = parted["launch"] % 2 == 1
    first = parted["half"] == 0
    for name, parity in SPLITS:
        here = first if parity == 1 else ~first
        yield Split(
            name,
            Panel(parted[here & (odd if parity == 1 else ~odd)], "s_per_token"),
            Panel(parted[~here & (~odd if parity == 1 else odd)], "s_per_token"),
        )


def _best(panel: Panel, servers: Sequence[str], concurrency: int) -> tuple[Matched, str]:
    """The server that needs fewest seconds per token, on what all of them were asked.

    Raises NotEnoughData with fewer prompts than `LEAST_PROMPTS`.
    """
    classes = panel.shared_classes(servers, concurrency)
    matched = panel.matched(servers, classes, concurrency)
    _need(matched.n_prompts, "to choose")
    levels = [class_mean([block.mean(axis=0) for block in blocks]) for blocks in matched.blocks]
    return matched, servers[int(np.argmin(levels))]


def _need(prompts: int, purpose: str) -> None:
    if prompts < LEAST_PROMPTS:
        raise NotEnoughData(prompts, LEAST_PROMPTS, f"prompts {purpose}")


def _no_choice(concurrency: int, reason: str, split: str = "both") -> Mapping[str, Value]:
    nothing = dict.fromkeys(CHOICE.names)
    return {**nothing, "concurrency": concurrency, "split": split, "detail": reason}
