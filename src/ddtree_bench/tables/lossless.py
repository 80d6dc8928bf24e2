"""Whether greedy answers are, token by token, those of plain decoding, and sound.

Two things make a server faulty. A first difference whose regret is no near tie: it emitted what the
target would not have said. A near tie is at most `analysis.near_tie_nats`, or as much as plain
decoding regrets against its own answers at other times and batch sizes: in bfloat16 one step of a
logit is larger than many a tie. Or answers that run in a circle, are empty or fail their check on
significantly more questions on which the baseline's are sound than the other way round; likewise
answers that do not end before the token limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ddtree_bench.columns import LOSSLESS
from ddtree_bench.config import FIXED_LENGTH, Config
from ddtree_bench.records import Question, RequestRecord
from ddtree_bench.session.logprobs import TopLogprobs, answer_sha256
from ddtree_bench.session.store import MeasuredCell
from ddtree_bench.stats.distributions import even_split_p_value
from ddtree_bench.stats.loops import Ids, is_degenerate
from ddtree_bench.stats.regret import Judgement, Regret, regret
from ddtree_bench.tables.rows import Value, frame_of

FLOOR_AT_MOST = 5
"""The baseline's own regret widens a near tie to so many times the configured limit at most: beyond
that the baseline is faulty itself, and hides nobody's faults.
"""

SOUND, FAULTY, NOT_COMPARED = "sound", "faulty", "not compared"


def first_difference(ids: Ids, reference: Ids) -> int | None:
    """Tokens before the first difference; None if there is none. A missing end is a difference."""
    common = min(len(ids), len(reference))
    differing = np.flatnonzero(ids[:common] != reference[:common])
    if len(differing) > 0:
        return int(differing[0])
    return None if len(ids) == len(reference) else common


@dataclass(frozen=True, slots=True)
class Answer:
    """One greedy answer and what is wrong with it at first sight."""

    question: Question
    ids: Ids
    loop: bool
    empty: bool
    broken: bool
    """It failed the check of its prompt."""
    cut: bool
    """The token limit ended it."""

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with it."""
        return not (self.loop or self.empty or self.broken)


@dataclass(frozen=True, slots=True)
class Difference:
    """A first difference: tokens before it, and the target's regret where it is known."""

    position: int
    regret: Regret | None


@dataclass(slots=True)
class LosslessTable:
    """Collects sound cells in order; the baseline's first answer to a question is the reference."""

    config: Config
    _answers: dict[str, list[Answer]] = field(default_factory=dict)
    _places: list[TopLogprobs] = field(default_factory=list)
    _tops: dict[tuple[Question, int], dict[int, float]] = field(default_factory=dict)
    """What the target thought at places of the references."""
    _strays: int = 0
    """Places of other answers than the references."""
    _loops: dict[bytes, bool] = field(default_factory=dict)

    def add_cell(self, measured: MeasuredCell) -> None:
        """Take the greedy answers with token ids of a cell that enters statistics."""
        if measured.cell.workload_class == FIXED_LENGTH:
            return  # past its end a text runs in circles, and no answer is meant to
        for request in measured.requests:
            if request.sampling.temperature == 0 and request.output_ids is not None:
                answers = self._answers.setdefault(request.cell.server, [])
                answers.append(self._answer(request, request.output_ids))

    def add_logprobs(self, places: Iterable[TopLogprobs]) -> None:
        """Take what the target thought at some places of the baseline's answers."""
        self._places += places

    def frame(self) -> pd.DataFrame:
        """A row a server, also where nothing could be compared."""
        references = _first_answers(self._answers.get(self.config.analysis.baseline, ()))
        own = list(_of_references(self._places, references))
        self._strays = len(self._places) - len(own)
        self._tops = {(place.question, place.position): dict(place.top) for place in own}
        limit = self._near_tie_nats(references)
        rows = (self._row(server, references, limit) for server in self.config.servers)
        return frame_of(rows, LOSSLESS)

    def _near_tie_nats(self, references: Mapping[Question, Answer]) -> float:
        """The configured limit, or the largest regret of the baseline against itself."""
        differences = self._differences(self._compared(self.config.analysis.baseline, references))
        floor = [found.regret.nats for found in differences if found.regret and found.regret.exact]
        limit = self.config.analysis.near_tie_nats
        return min(max([limit, *floor]), FLOOR_AT_MOST * limit)

    def _compared(
        self, server: str, references: Mapping[Question, Answer]
    ) -> list[tuple[Answer, Answer]]:
        """A server's answers with the reference's to the same question; not one with itself."""
        return [
            (answer, references[answer.question])
            for answer in self._answers.get(server, [])
            if answer.question in references and answer is not references[answer.question]
        ]

    def _differences(self, pairs: Iterable[tuple[Answer, Answer]]) -> list[Difference]:
        return [found for pair in pairs if (found := self._difference(*pair)) is not None]

    def _answer(self, request: RequestRecord, output_ids: Sequence[int]) -> Answer:
        ids = np.array(output_ids, dtype=np.int32)
        key = ids.tobytes()
        if key not in self._loops:  # most answers are those of another launch or server
            self._loops[key] = is_degenerate(ids)
        check = request.check
        empty = len(ids) == 0 or (request.text.strip() == "" and request.completion_tokens == 1)
        broken, cut = check is not None and not check.valid, request.finish_reason == "length"
        return Answer(request.question, ids, self._loops[key], empty, broken, cut)

    def _row(
        self, server: str, references: Mapping[Question, Answer], limit: float
    ) -> Mapping[str, Value]:
        answers = self._answers.get(server, [])
        compared = self._compared(server, references)
        differences = self._differences(compared)
        identical = len(compared) - len(differences)
        judged = _judged(differences, limit)
        first = _first_answers(answers)
        worse, better = _discordant(first, references, lambda answer: answer.sound)
        longer, shorter = _discordant(first, references, lambda answer: not answer.cut)
        faults = judged[Judgement.FAULT]
        said = self._faults(faults, limit, (worse, better), (longer, shorter))
        strays = self._strays if server == self.config.analysis.baseline else None
        noted = f"{strays} recorded places are of other answers and left out" if strays else ""
        lacking = (NOT_COMPARED, noted or "no greedy answer with token ids")
        nothing = (SOUND, noted) if compared else lacking
        verdict, detail = (FAULTY, said) if said else nothing
        positions = [difference.position for difference in differences]
        regrets = [found.regret.nats for found in differences if found.regret is not None]
        return {
            "server": server,
            "compared": len(compared),
            "identical": identical,
            "share": identical / len(compared) if compared else None,
            "first_difference_median": float(np.median(positions)) if positions else None,
            "near_ties": judged[Judgement.NEAR_TIE],
            "regret_faults": faults,
            "not_judged": judged[Judgement.NOT_JUDGED],
            "stray_places": strays,
            "worst_regret_nats": max(regrets, default=None),
            "near_tie_nats": limit,
            "loops": sum(answer.loop for answer in answers),
            "empty": sum(answer.empty for answer in answers),
            "broken": sum(answer.broken for answer in answers),
            "worse": worse,
            "better": better,
            "cut": sum(answer.cut for answer in answers),
            "longer": longer,
            "shorter": shorter,
            "verdict": verdict,
            "verdict_detail": detail,
        }

    def _difference(self, answer: Answer, reference: Answer) -> Difference | None:
        place = first_difference(answer.ids, reference.ids)
        if place is None:
            return None
        top = self._tops.get((answer.question, place))
        if not top or place >= len(answer.ids):  # an answer that ends early emitted nothing there
            return Difference(place, None)
        return Difference(place, regret(top, int(answer.ids[place])))

    def _faults(
        self, regret_faults: int, limit: float, unsound: tuple[int, int], cut: tuple[int, int]
    ) -> str:
        """What is wrong with a server's answers; empty if nothing is shown to be.

        Each pair counts questions on which only the server fails, and only the baseline; two tests,
        so that each has half of the error rate.
        """
        if regret_faults > 0:
            return f"{regret_faults} tokens more than {limit:g} nats below the first choice"
        alpha = (1 - self.config.analysis.confidence) / 2
        if _is_worse(*unsound, alpha):
            worse, better = unsound
            return f"unsound on {worse} questions where plain is sound, {better} reversed"
        if _is_worse(*cut, alpha):
            longer, shorter = cut
            return f"cut by the limit on {longer} questions where plain ends, {shorter} reversed"
        return ""


def _of_references(
    places: Iterable[TopLogprobs], references: Mapping[Question, Answer]
) -> Iterator[TopLogprobs]:
    """The places of the references: one of another answer to its question tells nothing.

    Places of old do not say whose they are, and are taken for the reference's.
    """
    known = {question: answer_sha256(answer.ids) for question, answer in references.items()}
    for place in places:
        wanted = known.get(place.question)
        if None in (wanted, place.answer_sha256) or place.answer_sha256 == wanted:
            yield place


def _is_worse(worse: int, better: int, alpha: float) -> bool:
    return worse > better and even_split_p_value(worse, worse + better) < alpha


def _judged(differences: Sequence[Difference], limit: float) -> dict[Judgement, int]:
    counts = dict.fromkeys(Judgement, 0)
    for difference in differences:
        found = difference.regret
        counts[Judgement.NOT_JUDGED if found is None else found.judged(limit)] += 1
    return counts


def _first_answers(answers: Iterable[Answer]) -> dict[Question, Answer]:
    """The first answer to each question."""
    first: dict[Question, Answer] = {}
    for answer in answers:
        first.setdefault(answer.question, answer)
    return first


def _discordant(
    mine: Mapping[Question, Answer],
    references: Mapping[Question, Answer],
    good: Callable[[Answer], bool],
) -> tuple[int, int]:
    """Questions on which only the reference is good, and on which only the server is.

    A question counts once: launches repeat a greedy answer and are no further evidence.
    """
    pairs = [(good(mine[q]), good(references[q])) for q in mine.keys() & references.keys()]
    return pairs.count((False, True)), pairs.count((True, False))
