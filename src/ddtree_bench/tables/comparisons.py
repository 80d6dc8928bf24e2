"""The table of comparisons: who against whom, by how much, and what that supports."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from ddtree_bench.columns import COMPARISONS, POOLED
from ddtree_bench.config import CLASSES, Config
from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats.compare import Effect, prompt_differences, sign_test, speedup
from ddtree_bench.stats.summary import class_mean
from ddtree_bench.stats.verdict import Family, Rule, Verdict
from ddtree_bench.tables.pairs import BASELINE, Pair, pairs_of
from ddtree_bench.tables.panel import Matched, Panel
from ddtree_bench.tables.rounds import Rounds
from ddtree_bench.tables.rows import Value, frame_of

NOT_INTERLEAVED = "not interleaved: the two were not measured in the same rounds"


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: a pair on one class or all of them, at one concurrency."""

    pair: Pair
    workload_class: str
    concurrency: int
    classes: tuple[str, ...]
    """The classes that enter."""
    lacking: tuple[str, ...]
    """Classes that should enter but were not measured on both sides."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the data say about a case, before the correction for many comparisons."""

    case: Case
    matched: Matched | None = None
    effect: Effect | None = None
    obstacle: str = ""
    """Why there is no effect."""
    left_out: tuple[int, ...] = ()
    """Rounds dropped on both sides because a launch of either was throttled."""


class Point(NamedTuple):
    """A speed-up at one concurrency; without an end where there is no interval."""

    concurrency: int
    speedup: float
    low: float | None
    high: float | None


class Curve(NamedTuple):
    """A server's speed-up over the baseline by concurrency, lowest first."""

    server: str
    classes: tuple[str, ...]
    points: tuple[Point, ...]


class Judged(NamedTuple):
    """A tested outcome's place among those that it is corrected for."""

    family: Family
    place: int


class Comparisons:
    """The comparisons of a run, from its cells and seconds per token."""

    def __init__(
        self,
        config: Config,
        cells: pd.DataFrame,
        speeds: Panel,
        rounds: Rounds,
        faults: Mapping[str, str] | None = None,
        decoding: Panel | None = None,
    ) -> None:
        """Take what was measured.

        Args:
            config: of the run.
            cells: the table of cells, also failed ones.
            speeds: seconds per token, without the launches that were throttled.
            rounds: of these cells.
            faults: what is wrong with the answers of faulty servers.
            decoding: seconds per token after the first one, of the same launches.
        """
        self._config = config
        self._rule = Rule(config.analysis.margin, config.analysis.confidence)
        self._speeds = speeds
        self._rounds = rounds
        self._faults = faults or {}
        self._attached = frozenset(n for n, s in config.servers.items() if s.engine == "attach")
        self._decoding = decoding
        keys = cells[["server", "workload_class", "concurrency"]].drop_duplicates()
        self._asked: set[tuple[str, str, int]] = {tuple(key) for key in keys.to_numpy()}

    def frame(
        self, classes: pd.DataFrame, overall: pd.DataFrame, *, by_class: bool = True
    ) -> pd.DataFrame:
        """The table; acceptance and step times are those of the tables given.

        `by_class` false leaves single classes out; they have no part in pooled rows.
        """
        cases = (case for case in self._cases() if by_class or case.workload_class == POOLED)
        outcomes = [self._outcome(case) for case in cases]
        judged = _judged(outcomes, self._rule)
        costs = _costs(self._config, classes, overall)
        return frame_of(
            (
                self._row(outcome, judged.get(place), costs)
                for place, outcome in enumerate(outcomes)
            ),
            COMPARISONS,
        )

    def _cases(self) -> Iterator[Case]:
        for pair in pairs_of(self._config):
            for concurrency in self._concurrencies():
                asked = self._asked_classes(pair, concurrency)
                shared = self._speeds.shared_classes(pair.servers, concurrency)
                if asked:
                    lacking = tuple(name for name in asked if name not in shared)
                    yield Case(pair, POOLED, concurrency, shared, lacking)
                for name in asked:
                    yield Case(pair, name, concurrency, (name,), ())

    def curves(self) -> Iterator[Curve]:
        """Each server against the baseline at all concurrencies, over the same classes at each.

        A class that is missing at one of them would bend the curve by being missing.
        """
        for pair in pairs_of(self._config):
            if pair.relation != BASELINE:
                continue
            shared = {
                concurrency: self._speeds.shared_classes(pair.servers, concurrency)
                for concurrency in self._concurrencies()
            }
            levels = {concurrency: names for concurrency, names in shared.items() if names}
            classes = tuple(n for n in CLASSES if all(n in names for names in levels.values()))
            if len(levels) > 1 and classes:
                outcomes = (self._outcome(Case(pair, POOLED, c, classes, ())) for c in levels)
                points = tuple(_points(outcomes, self._rule.confidence))
                yield Curve(pair.candidate, classes, points)

    def _concurrencies(self) -> list[int]:
        return sorted({concurrency for _, _, concurrency in self._asked})

    def _asked_classes(self, pair: Pair, concurrency: int) -> tuple[str, ...]:
        """The classes of which either side has a cell, ok or not."""
        return tuple(
            name
            for name in CLASSES
            if {(pair.candidate, name, concurrency), (pair.reference, name, concurrency)}
            & self._asked
        )

    def _outcome(self, case: Case) -> Outcome:
        servers = case.pair.servers
        obstacle = self._not_comparable(case, servers)
        if obstacle is not None:
            return Outcome(case, obstacle=obstacle)
        where = (servers, case.classes, case.concurrency)
        rounds = self._rounds.interleaved(*where)
        left_out = tuple(sorted(self._rounds.left_out(servers, rounds)))
        try:
            matched = self._speeds.matched(*where, rounds or None)
        except NotEnoughData as error:
            return Outcome(case, obstacle=str(error), left_out=left_out)
        if not rounds:  # the ratio is shown, but a drift between the two would be in it
            return Outcome(case, matched, obstacle=NOT_INTERLEAVED)
        return self._tested(Outcome(case, matched, left_out=left_out), matched)

    def _tested(self, outcome: Outcome, matched: Matched) -> Outcome:
        """The outcome with its effect, or with what stands in the way of one."""
        case = outcome.case
        try:
            noise = self._speeds.noise(case.classes, case.concurrency)
        except NotEnoughData:
            return replace(outcome, obstacle="one launch: noise between launches unknown")
        candidate, reference = matched.blocks
        try:
            effect = speedup(reference, candidate, noise)
        except NotEnoughData as error:
            return replace(outcome, obstacle=str(error))
        return replace(outcome, effect=effect)

    def _not_comparable(self, case: Case, servers: Sequence[str]) -> str | None:
        """What stands in the way of any comparison: a side unmeasured, or no round in common."""
        named = CLASSES if case.workload_class == POOLED else case.classes
        for server in servers:
            if not any(self._speeds.launches(server, name, case.concurrency) for name in named):
                if any(name == server for name, _ in self._rounds.throttled):
                    return f"{server}: its launches were throttled and are left out"
                return f"{server} was not measured"
        shared = self._speeds.shared_classes(servers, case.concurrency)
        if not set(shared).intersection(named):
            return "not interleaved: no round was measured on both sides"
        return None

    def _row(self, outcome: Outcome, judged: Judged | None, costs: Costs) -> Mapping[str, Value]:
        case, effect, rule = outcome.case, outcome.effect, self._rule
        verdict, detail = _verdict(outcome, judged, rule, self._faults, self._attached)
        interval = None if effect is None else effect.interval(rule.confidence)
        return {
            "candidate": case.pair.candidate,
            "reference": case.pair.reference,
            "relation": case.pair.relation,
            "workload_class": case.workload_class,
            "concurrency": case.concurrency,
            "classes": ", ".join(case.classes),
            "n_prompts": 0 if outcome.matched is None else outcome.matched.n_prompts,
            "n_launches": 0 if outcome.matched is None else len(outcome.matched.launches),
            "speedup": None if outcome.matched is None else _ratio(outcome.matched),
            "speedup_low": None if interval is None else interval.low,
            "speedup_high": None if interval is None else interval.high,
            "p_value": None if effect is None else effect.p_value(),
            "p_holm": None if judged is None else judged.family.p_adjusted(judged.place),
            **_signs(outcome.matched, rule.margin),
            "noise_floor": None if effect is None else effect.noise.floor,
            **_predicted(case, costs),
            "first_token_factor": self._first_token(outcome),
            "verdict": verdict.value,
            "verdict_detail": detail,
        }

    def _first_token(self, outcome: Outcome) -> float | None:
        """The speed-up ÷ what it is after the first tokens, of the same launches and prompts."""
        case, matched = outcome.case, outcome.matched
        if matched is None or self._decoding is None:
            return None
        where = (case.pair.servers, case.classes, case.concurrency)
        try:
            after = self._decoding.matched(*where, matched.launches)
        except NotEnoughData:
            return None
        same = (after.launches, after.n_prompts) == (matched.launches, matched.n_prompts)
        return _ratio(matched) / _ratio(after) if same else None


class Totals(NamedTuple):
    """What a server did by itself in a class or all of them; NaN: unknown."""

    acceptance: float = math.nan
    step_time_s: float = math.nan
    tok_per_s: float = math.nan
    """Tokens of all cells ÷ their seconds."""


Costs = Mapping[tuple[str, str, int], Totals]
"""By server, class (or all) and concurrency."""


def _costs(config: Config, classes: pd.DataFrame, overall: pd.DataFrame) -> Costs:
    keys = ["server", "workload_class", "concurrency"]
    names = [*keys, "acceptance_length", "step_time_s", "tok_per_s_of_totals"]
    rows = pd.concat([classes[names], overall.assign(workload_class=POOLED)[names]])
    costs = {}
    for server, workload_class, concurrency, *told in rows.to_numpy(dtype=object):
        totals = Totals(*(math.nan if pd.isna(value) else float(value) for value in told))
        plain = config.servers[server].algorithm == "AR"
        costs[server, workload_class, concurrency] = (
            totals._replace(acceptance=1.0) if plain else totals
        )
    return costs


def _predicted(case: Case, costs: Costs) -> dict[str, Value]:
    """What acceptance and step times alone would give, prefill aside; and the ratio of totals."""
    where = (case.workload_class, case.concurrency)
    candidate = costs.get((case.pair.candidate, *where), Totals())
    reference = costs.get((case.pair.reference, *where), Totals())
    acceptance, step, totals = (
        mine / other for mine, other in zip(candidate, reference, strict=True)
    )
    return {
        "totals_ratio": totals,
        "acceptance_ratio": acceptance,
        "step_time_ratio": step,
        "predicted_speedup": acceptance / step,
    }


def _points(outcomes: Iterable[Outcome], level: float) -> Iterator[Point]:
    """A point an outcome that has both sides."""
    for outcome in outcomes:
        if outcome.matched is not None:
            interval = None if outcome.effect is None else outcome.effect.interval(level)
            ends = (None, None) if interval is None else (interval.low, interval.high)
            yield Point(outcome.case.concurrency, _ratio(outcome.matched), *ends)


def _ratio(matched: Matched) -> float:
    candidate, reference = matched.blocks
    return float(np.exp(class_mean(prompt_differences(reference, candidate))))


def _signs(matched: Matched | None, margin: float) -> dict[str, Value]:
    """The sign test on each prompt's median over launches."""
    if matched is None:
        return {"wins": 0, "ties": 0, "losses": 0, "sign_p": None}
    candidate, reference = matched.blocks
    medians = [
        np.median(slow - fast, axis=0) for slow, fast in zip(reference, candidate, strict=True)
    ]
    signs = sign_test(np.concatenate(medians), tie=math.log1p(margin))
    return {
        "wins": signs.wins,
        "ties": signs.ties,
        "losses": signs.losses,
        "sign_p": signs.p_value,
    }


def _judged(outcomes: Sequence[Outcome], rule: Rule) -> dict[int, Judged]:
    """The tested outcomes by number, in two families: all pooled ones, all of a single class."""
    judged = {}
    for pooled in (True, False):
        tested = {
            number: outcome.effect
            for number, outcome in enumerate(outcomes)
            if outcome.effect is not None
            and outcome.case.pair.tested
            and (outcome.case.workload_class == POOLED) is pooled
        }
        family = Family(list(tested.values()), rule)
        judged.update({number: Judged(family, place) for place, number in enumerate(tested)})
    return judged


def _verdict(
    outcome: Outcome,
    judged: Judged | None,
    rule: Rule,
    faults: Mapping[str, str],
    attached: Collection[str],
) -> tuple[Verdict, str]:
    """The verdict and the sentence that explains it."""
    verdict, detail = _by_speed(outcome, judged, rule)
    pair = outcome.case.pair
    running = [name for name in pair.servers if name in attached]
    if running and verdict is not Verdict.NOT_TESTED:
        verdict, detail = (
            Verdict.UNDECIDED,
            (
                f"{' and '.join(running)}: launched by others, so that nobody knows how much its "
                f"launches differ; by the sessions alone: {detail}"
            ),
        )
    if pair.candidate in faults:
        said = f"faulty answers ({faults[pair.candidate]}); by speed alone: {verdict.sentence}"
        return Verdict.FAULTY, said
    if pair.reference in faults:
        return verdict, f"{detail}; the answers of {pair.reference} are faulty"
    return verdict, detail


def _by_speed(outcome: Outcome, judged: Judged | None, rule: Rule) -> tuple[Verdict, str]:
    if not outcome.case.pair.tested:
        told = outcome.obstacle or Verdict.NOT_TESTED.sentence
        return Verdict.NOT_TESTED, _noted(told, outcome)
    if outcome.effect is None or judged is None:
        return Verdict.UNDECIDED, _noted(outcome.obstacle, outcome)
    family, place = judged
    verdict = family.verdict(place)
    if verdict is not Verdict.UNDECIDED:
        return verdict, _noted(f"{verdict.sentence} of {rule.margin:.1%}", outcome)
    limit = family.what_would_decide(place)
    if outcome.effect.p_value() < rule.alpha:
        limit = f"a difference, but not after the correction for many comparisons; {limit}"
    return verdict, _noted(limit, outcome)


def _noted(sentence: str, outcome: Outcome) -> str:
    """The sentence, with the classes and rounds that are missing."""
    notes = [sentence]
    if outcome.matched is not None and outcome.case.lacking:
        notes.append(f"without {', '.join(outcome.case.lacking)}")
    if outcome.left_out:
        rounds = ", ".join(map(str, outcome.left_out))
        notes.append(f"without the throttled rounds {rounds}")
    return "; ".join(notes)
