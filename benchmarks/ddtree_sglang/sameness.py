"""Whether servers answer as they should: like the target, like the reference, with any graph."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

from asking import (
    Answer,
    Question,
    Server,
    class_questions,
    eval_questions,
    first_difference,
)
from estimates import quantiles, same_distribution
from run import Run
from servers import CHAIN, ROOT, TREE, JsonObject, log_text

TRACED, TRACED_EAGER = "ddtree-b15-k8-traced", "ddtree-b15-k8-traced-eager"
NEAR_TIE_NATS = 0.5
"""How far behind the target's first choice a token may be: bf16 rounds by batch shape, and logits
of 16 to 32 are 0.125 apart in it."""
REFERENCE_TOKENS = 192
REFERENCE_ARMS = {CHAIN: "chain 16", TREE: "tree 15/8"}
REFERENCE_TOLERANCE = 0.03
SIZED, SIZES_TOKENS = "-sized", 96
PADDED, FULL = 3, 8
"""Requests at once; graphs are captured for 1, 2, 4, 8, …, so 3 run in a padded one."""
LEAST_EQUAL_TREES = 0.98
DRAWS, DRAWN_TOKENS = 1200, 4
LEAST_P = 0.001
"""Chance that a run with equal distributions fails, over all of its tests together."""


# --- losslessness


def judge_differences(
    run: Run,
    questions: Sequence[Question],
    answers: Mapping[str, Sequence[Answer]],
    plain: str = "ar",
) -> JsonObject:
    """Hold each server's answers against plain decoding's, up to the first difference.

    From there on the texts differ anyway. The token at that place must be a near tie of the
    target's logits, as the plain server computes them when it reads prompt and answer.
    """
    (judge,) = run.servers(plain)
    result: JsonObject = {}
    beyond: dict[str, int] = {}
    for name, given in answers.items():
        if name == judge.name:
            continue
        regrets = [
            _regret_where_parted(judge, question, wanted.ids, answer.ids)
            for question, wanted, answer in zip(questions, answers[plain], given, strict=False)
        ]
        parted = [nats for nats in regrets if nats is not None]
        beyond[name] = sum(nats > NEAR_TIE_NATS for nats in parted)
        result[name] = {
            "answers": len(regrets),
            "parted": len(parted),
            "no_near_tie": beyond[name],
            "regret_nats": quantiles(parted),
        }
    for name, count in beyond.items():
        if name.startswith("ddtree"):
            allowed = max((beyond[other] for other in beyond if "dflash" in other), default=0)
            run.report.check(
                f"{name}: parts from plain decoding at near ties", count <= allowed, result[name]
            )
    return result


def _regret_where_parted(
    judge: Server, question: Question, plain: Sequence[int], answer: Sequence[int]
) -> float | None:
    """Nats between the target's first choice and the token where the answers part, if they do."""
    place = first_difference(plain, answer)
    return None if place is None else judge.regrets(question.ids, answer[: place + 1])[-1]


def reference(run: Run) -> JsonObject:
    """Acceptance on the eval prompts against the reference engine's, while texts are the same.

    The reference runs in float32, which SGLang's norms on a GPU refuse. A server in bf16 takes
    another token at some near tie, and from there on drafts for another text.
    """
    wanted = json.loads((ROOT / "benchmarks/reference_texts.json").read_text(encoding="utf-8"))
    questions = eval_questions(run.target)
    result: JsonObject = {}
    for server in run.servers(*REFERENCE_ARMS):
        for question in questions:
            server.ask_whole(question.ids, 1)  # read in other pieces, it is rounded otherwise
        answers = [server.ask_by_step(q.ids, REFERENCE_TOKENS) for q in questions]
        step_lens = wanted["step_lens"][REFERENCE_ARMS[server.name]]
        found = _against_reference(answers, wanted["texts"], step_lens)
        result[server.name] = found
        run.report.check(
            f"{server.name}: acceptance is the reference engine's",
            abs(found["ratio"] - 1) <= REFERENCE_TOLERANCE,
            found,
        )
    return result


def _against_reference(
    answers: Sequence[tuple[Sequence[int], Sequence[int]]],
    texts: Sequence[Sequence[int]],
    step_lens: Sequence[Sequence[int]],
) -> dict[str, float]:
    """Acceptance over the steps that end within what two engines' texts have in common.

    `answers` holds ids and tokens of each step, `texts` and `step_lens` the same of the reference.
    A step at whose end the texts part or stop is left out, as it may have been cut.
    """
    own, others, same = [], [], 0
    for (ids, lens), text, reference_lens in zip(answers, texts, step_lens, strict=True):
        place = first_difference(ids, text)
        same += place is None and len(ids) == len(text)
        shared = min(len(ids), len(text)) if place is None else place
        own += _steps_before(lens, shared)
        others += _steps_before(reference_lens, shared)
    some, reference = (sum(lens) / len(lens) for lens in (own, others))
    return {
        "acceptance_length": some,
        "reference": reference,
        "ratio": some / reference,
        "steps": len(own),
        "reference_steps": len(others),
        "whole_acceptance_length": _pooled([lens for _, lens in answers]),
        "whole_reference": _pooled(step_lens),
        "same_texts": same,
    }


def _pooled(step_lens: Iterable[Sequence[int]]) -> float:
    lens = [tokens for some in step_lens for tokens in some]
    return sum(lens) / len(lens)


def _steps_before(lens: Sequence[int], place: int) -> list[int]:
    """The steps behind the prefill's token that end before a place in the text."""
    ends = accumulate(lens, initial=1)
    next(ends)
    return [tokens for tokens, end in zip(lens, ends, strict=True) if end < place]


def acceptance(answers: Iterable[Answer]) -> float:
    """Tokens a verify step, bonus included, pooled."""
    some = list(answers)
    return sum(a.produced for a in some) / sum(a.steps for a in some)


# --- graphs, cuts and counts


def graphs(run: Run) -> JsonObject:
    """CUDA graphs against eager runs, tree by tree; alone, in a padded and in a full graph.

    A graph that lost the mask verifies a tree as a chain: texts are right and acceptance falls.
    """
    with_graphs, eager = run.servers(TRACED, TRACED_EAGER)
    questions = eval_questions(run.target)
    for server in (with_graphs, eager):
        server.warm(questions, FULL)
    result: JsonObject = {}
    for at_once in (1, PADDED, FULL):
        some = with_graphs.loop(questions, at_once).answers
        others = eager.loop(questions, at_once).answers
        pairs = list(zip(some, others, strict=True))
        equal, compared = map(sum, zip(*(equal_trees(a, b) for a, b in pairs), strict=True))
        ratio = acceptance(some) / acceptance(others)
        result[str(at_once)] = {
            "trees": compared,
            "equal": equal,
            "same_texts": sum(a.ids == b.ids for a, b in pairs),
            "acceptance_ratio": ratio,
        }
        found = f"{equal} of {compared} trees equal, acceptance ratio {ratio:.3f}"
        # rounding by batch shape may swap neighbours in a tree, and who is in a batch is chance
        passed = abs(ratio - 1) <= 0.05 and (at_once > 1 or equal >= LEAST_EQUAL_TREES * compared)
        run.report.check(f"graphs give eager trees, {at_once} at once", passed, found)
        wrong = [answer.fields for answer in some if not _counts_agree(answer)]
        run.report.check(f"counts agree, {at_once} at once", not wrong, f"{len(wrong)} wrong")
    return result


def equal_trees(some: Answer, others: Answer) -> tuple[int, int]:
    """Equal and compared trees, up to where the texts part; a tree hangs on the text before it."""
    parted = first_difference(some.ids, others.ids)
    until = len(some.ids) if parted is None else parted
    traces = [answer.fields["ddtree_trace"] for answer in (some, others)]
    assert all(isinstance(trace, list) for trace in traces)
    pairs = [
        (a, b)
        for a, b in zip(traces[0][:until], traces[1][:until], strict=False)
        if a is not None and b is not None
    ]
    keys = ("tokens", "parents", "path")
    return sum(all(a[key] == b[key] for key in keys) for a, b in pairs), len(pairs)


def _counts_agree(answer: Answer) -> bool:
    """The tree's fields agree with SGLang's own counts."""
    by_rank, by_depth, nodes = (
        answer.fields[f"ddtree_{what}"]
        for what in ("accepted_by_rank", "accepted_by_depth", "nodes_by_depth")
    )
    assert isinstance(by_rank, list)
    assert isinstance(by_depth, list)
    assert isinstance(nodes, list)
    width = answer.fields["ddtree_verify_width"]
    assert isinstance(width, int)
    most_nodes = answer.steps * (width - 1)
    return sum(by_rank) == sum(by_depth) == answer.accepted and 0 < sum(nodes) <= most_nodes


def sizes(run: Run) -> JsonObject:
    """Trees of every size, alone and several at once: counts agree, answers are the target's."""
    names = [name for name in run.urls if name.endswith(SIZED)]
    (judge,) = run.servers("ar")
    questions = eval_questions(run.target)
    answers = {judge.name: judge.loop(questions, 1, SIZES_TOKENS).answers}
    result: JsonObject = {}
    for server in run.servers(*names):
        answers[server.name] = server.loop(questions, 1, SIZES_TOKENS).answers
        together = server.loop(questions, FULL, SIZES_TOKENS).answers
        wrong = [a.fields for a in (*answers[server.name], *together) if not _counts_agree(a)]
        run.report.check(f"{server.name}: counts agree", not wrong, wrong[:2])
        result[server.name] = {
            "acceptance_length": acceptance(answers[server.name]),
            "at_once": acceptance(together),
        }
        log = log_text(server.name, run.launch)
        faults = [line for line in log.splitlines() if "Traceback" in line]
        run.report.check(f"{server.name}: the log is clean", not faults, faults)
    result["losslessness"] = judge_differences(run, questions, answers)
    return result


def cuts(run: Run) -> JsonObject:
    """Limits and stops inside an accepted path cut exactly there."""
    (server,) = run.servers(TRACED)
    ids = eval_questions(run.target)[0].ids
    server.ask_whole(ids, 1)
    whole = server.ask_whole(ids).ids
    lengths = [server.ask_whole(ids, n).ids == whole[:n] for n in range(1, 25)]
    run.report.check("length limits", all(lengths), f"{sum(lengths)} of {len(lengths)} exact")
    stops = [
        server.ask_whole(ids, stop_token_ids=[token]).ids == whole[: whole.index(token) + 1]
        for token in dict.fromkeys(whole[:16])
    ]
    run.report.check("stop tokens", all(stops), f"{sum(stops)} of {len(stops)} exact")
    return {}


# --- sampling


def sampling(run: Run) -> JsonObject:
    """Temperature 1 through a tree has the target's distribution, whatever was drafted."""
    plain, tree = run.servers("ar", TREE)
    questions = class_questions(run.target, 1, seed=3)[:3]
    p_values: dict[str, float] = {}
    controls: dict[str, float] = {}
    for number, question in enumerate(questions):
        if run.is_late():
            break
        drawn, again, expected = (_draw(server, question) for server in (tree, plain, plain))
        for what in expected:
            p_values[f"{number} {what}"] = same_distribution(drawn[what], expected[what])
            controls[f"{number} {what}"] = same_distribution(again[what], expected[what])
    least = min(p_values.values(), default=1.0) * len(p_values)
    run.report.check(
        "sampled tokens are distributed as plain decoding's", least >= LEAST_P, p_values
    )
    return {"p_values": p_values, "plain_against_itself": controls, "draws": DRAWS}


def _draw(server: Server, question: Question) -> dict[str, Counter[tuple[int, ...]]]:
    """Counts of sampled tokens behind the first, which is the prefill's, and of all together."""
    with ThreadPoolExecutor(32) as pool:
        answers = list(
            pool.map(
                lambda _: server.ask_whole(question.ids, DRAWN_TOKENS, temperature=1.0).ids,
                range(DRAWS),
            )
        )
    places = range(1, DRAWN_TOKENS)
    counts = {
        f"token {place}": Counter(ids[place : place + 1] for ids in answers) for place in places
    }
    return counts | {"all": Counter(ids[1:] for ids in answers)}
