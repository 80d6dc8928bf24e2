"""What the target itself thought at some places of its answers: `logprobs.jsonl` of a session.

A line is a place: the question (workload, prompt, turn, and the prompt as rendered), the number of
tokens of the answer before it, and the most likely next tokens with their log probabilities, plain
decoding. Two workloads may share a prompt and have other answers to it, so each has its own places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, TypeAdapter

from ddtree_bench.hashing import json_sha256
from ddtree_bench.json_lines import read_lines
from ddtree_bench.records import Question, Record
from ddtree_bench.session.store import write_whole

NonPositive = Annotated[float, Field(le=0)]


class TopLogprobs(Record):
    """The target's most likely tokens after `position` tokens of its own answer."""

    kind: Literal["logprobs"] = "logprobs"
    workload: str
    prompt_id: str
    turn: NonNegativeInt
    prompt_sha256: str
    position: NonNegativeInt
    top: tuple[tuple[int, NonPositive], ...]
    """Token id and log probability, nats."""
    answer_sha256: str | None = None
    """`answer_sha256` of the answer whose place this is; None: recorded before this was kept."""

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.workload, self.prompt_id, self.turn, self.prompt_sha256


def answer_sha256(ids: Iterable[int]) -> str:
    """Hash of an answer by its token ids."""
    return json_sha256([int(token) for token in ids])


def read_logprobs(path: Path) -> Iterator[TopLogprobs]:
    """The places of a file; none if there is no file. Raises WrongLine, naming a wrong one."""
    if path.exists():
        yield from (place for _, place in read_lines(path, TypeAdapter(TopLogprobs)))


def write_logprobs(path: Path, places: Iterable[TopLogprobs]) -> None:
    """Write places as JSON Lines; the file appears at once."""
    write_whole(path, "".join(f"{place.model_dump_json()}\n" for place in places))
