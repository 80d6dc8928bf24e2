"""What the target itself thought at some places of its answers: `logprobs.jsonl` of a session.

A line is a place: the question (workload, prompt, turn, and the prompt as rendered), the number of
tokens of the answer before it, and the most likely next tokens with their log probabilities, plain
decoding. Two workloads may share a prompt and have other answers to it, so each has its own places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, ValidationError

from ddtree_bench.errors import BenchError
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

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.workload, self.prompt_id, self.turn, self.prompt_sha256


def read_logprobs(path: Path) -> Iterator[TopLogprobs]:
    """The places of a file; none if there is no file. Raises BenchError, naming a wrong line."""
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line:
            continue
        try:
            yield TopLogprobs.model_validate_json(line)
        except ValidationError as error:
            what = f"not a place with log probabilities: {error.errors()[0]['msg']}"
            raise BenchError(
                what,
                where=f"{path}:{number}",
                remedy="record the session again, or delete the file",
            ) from error


def write_logprobs(path: Path, places: Iterable[TopLogprobs]) -> None:
    """Write places as JSON Lines; the file appears at once."""
    write_whole(path, "".join(f"{place.model_dump_json()}\n" for place in places))
