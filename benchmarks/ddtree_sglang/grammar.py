"""Answers that a JSON schema constrains: valid, and plain decoding's up to near ties."""

from __future__ import annotations

import json
from collections.abc import Sequence

from asking import Answer, Question, Server, first_difference
from estimates import quantiles
from run import Run
from sameness import NEAR_TIE_NATS, acceptance
from servers import JsonObject, Launch, Plan

from ddtree_bench.chat_template import PromptTokenizer

BACKEND = ("--grammar-backend", "xgrammar")
LABEL = "-grammar"
TOKENS, AT_ONCE = 120, 8
KINDS = ("city", "river", "mountain")
SCHEMA_KINDS = {"name": str, "kind": str, "size": int}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "kind": {"enum": list(KINDS)},
        "size": {"type": "integer", "minimum": 0, "maximum": 100000},
    },
    "required": list(SCHEMA_KINDS),
    "additionalProperties": False,
}
PLACES = (
    *("Lisbon", "the Nile", "Mont Blanc", "the capital of Norway"),
    *("Kyoto", "the Danube", "Ben Nevis", "the longest river of South America"),
)


def plans(launch: Launch) -> list[Plan]:
    """Plain decoding, chain and tree with a library of grammars."""
    return [
        launch.plain(*BACKEND, label=LABEL),
        launch.chain(16, *BACKEND, label=LABEL),
        launch.tree(15, 8, 16, *BACKEND, label=LABEL),
    ]


def constrained(run: Run) -> JsonObject:
    """Constrained answers of chain and tree, alone and in a batch, against plain decoding's."""
    plain, *drafting = run.servers(*(plan.name for plan in plans(run.launch)))
    tokenizer = PromptTokenizer.load(run.target)
    questions = _questions(tokenizer)
    wanted = _answers(plain, questions, 1)
    result: JsonObject = {}
    for server in drafting:
        answers = {n: _answers(server, questions, n) for n in (1, AT_ONCE)}
        for at_once, given in answers.items():
            texts = [tokenizer.decode(answer.ids) for answer in given]
            wrong = [text for text in texts if not _is_valid(text)]
            run.report.check(f"{server.name}: valid, {at_once} at once", not wrong, wrong[:2])
            nats = _nats_where_parted(plain, questions, wanted, given)
            run.report.check(
                f"{server.name}: parts at near ties, {at_once} at once",
                all(each <= NEAR_TIE_NATS for each in nats),
                quantiles(nats),
            )
        result[server.name] = {"acceptance_length": acceptance(answers[1])}
    return result


def _questions(tokenizer: PromptTokenizer) -> list[Question]:
    texts = [f"Describe {place} as a JSON object with name, kind and size." for place in PLACES]
    return [
        Question("grammar", tokenizer.render([{"role": "user", "content": text}])) for text in texts
    ]


def _answers(server: Server, questions: Sequence[Question], at_once: int) -> list[Answer]:
    schema = json.dumps(SCHEMA)
    return server.loop(questions, at_once, TOKENS, json_schema=schema).answers


def _is_valid(text: str) -> bool:
    """Whether a text is JSON of the schema's shape."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return (
        isinstance(found, dict)
        and found.keys() == SCHEMA_KINDS.keys()
        and all(isinstance(found[key], kind) for key, kind in SCHEMA_KINDS.items())
        and found["kind"] in KINDS
    )


def _nats_where_parted(
    judge: Server,
    questions: Sequence[Question],
    wanted: Sequence[Answer],
    given: Sequence[Answer],
) -> list[float]:
    """How far apart the target holds the two tokens where an answer parts from plain decoding's.

    They are held against each other, as the grammar may forbid what the target likes best.
    """
    found = []
    for question, plain, answer in zip(questions, wanted, given, strict=True):
        place = first_difference(plain.ids, answer.ids)
        if place is not None:
            one, other = (
                judge.regrets(question.ids, each.ids[: place + 1])[-1] for each in (plain, answer)
            )
            found.append(abs(one - other))
    return found
