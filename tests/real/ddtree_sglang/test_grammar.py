"""Answers that a JSON schema constrains: the grammar walks the tree with the target."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from real.ddtree_sglang.servers import (
    NEAR_TIE_NATS,
    Running,
    first_difference,
    regret,
    serving,
    tree_server,
)

from ddtree_bench.chat_template import PromptTokenizer

pytestmark = [pytest.mark.heavy, pytest.mark.extended]

# The grammar library that needs nothing compiled here.
BACKEND = ("--grammar-backend", "llguidance")
TOKENS = 120
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "kind": {"enum": ["city", "river", "mountain"]},
        "size": {"type": "integer", "minimum": 0, "maximum": 100000},
    },
    "required": ["name", "kind", "size"],
    "additionalProperties": False,
}
QUESTIONS = [
    f"Describe {what} as a JSON object with name, kind and size."
    for what in ("Lisbon", "the Nile", "Mont Blanc", "the capital of Norway")
]


@pytest.fixture(scope="module")
def questions(logs: Path) -> list[list[int]]:
    """Prompts as token ids."""
    from real.ddtree_sglang.servers import configured

    tokenizer = PromptTokenizer.load(Path(configured().model))
    return [list(tokenizer.render([{"role": "user", "content": q}])) for q in QUESTIONS]


def constrained(server: Running, questions: list[list[int]], at_once: int) -> list[dict[str, Any]]:
    """Answers under the schema."""
    schema = json.dumps(SCHEMA)
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda ids: server.answer(ids, TOKENS, json_schema=schema), questions))


def test_a_schema_constrains_a_trees_answer_as_a_plain_one(
    questions: list[list[int]], logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Valid alone and in a batch; texts part from plain decoding's at near ties only.

    Both tokens are judged by each other: the grammar may forbid what the target likes best.
    """
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # its mask kernel needs a compiler's headers
    with serving("plain-grammar", logs, *BACKEND) as plain:
        wanted = constrained(plain, questions, 1)
        with tree_server(logs, 15, 8, *BACKEND, name="tree-grammar") as server:
            alone = constrained(server, questions, 1)
            together = constrained(server, questions, 4)
        for prompt, expected, *others in zip(questions, wanted, alone, together, strict=True):
            for answer in others:
                found = json.loads(answer["text"])
                assert found.keys() == SCHEMA["properties"].keys()
                assert found["kind"] in ("city", "river", "mountain")
                place = first_difference(answer["output_ids"], expected["output_ids"])
                if place is None:
                    continue
                ids = [given["output_ids"][: place + 1] for given in (answer, expected)]
                one, other = (regret(plain, prompt, each)[-1] for each in ids)
                assert abs(one - other) <= NEAR_TIE_NATS
    assert sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in alone) > 0
