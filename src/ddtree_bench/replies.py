"""Recorded replies: what a conversation goes on with, so that all servers are asked the same.

A file of them is JSON Lines. A line belongs to a prompt by its questions, whatever its id: edited
questions have no replies until they are recorded again (`python -m ddtree_bench.rounds.replies`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ddtree_bench.errors import ConfigError, Fault
from ddtree_bench.json_lines import WrongLine, read_lines


class Replies(BaseModel):
    """What was once answered to the questions of one prompt, a reply a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt_id: str
    questions_sha256: str
    """`Prompt.questions_sha256` of the prompt that was asked."""
    replies: Annotated[tuple[str, ...], Field(min_length=1)]
    model_sha256: str | None = None
    """Of the weights that gave them; None where they were not known."""


def read_replies(paths: Iterable[Path]) -> dict[str, Replies]:
    """The replies of these files by `questions_sha256`; an earlier file goes before a later one.

    Raises:
        ConfigError: a file is missing, or a line is not as written.
    """
    found: dict[str, Replies] = {}
    for path in paths:
        for line in _lines(path):
            found.setdefault(line.questions_sha256, line)
    return found


def replies_text(replies: Iterable[Replies]) -> str:
    """The lines of a file of replies."""
    return "".join(f"{each.model_dump_json()}\n" for each in replies)


def _lines(path: Path) -> Iterable[Replies]:
    try:
        yield from (line for _, line in read_lines(path, TypeAdapter(Replies)))
    except FileNotFoundError:
        raise ConfigError([Fault(str(path), None, "", "there is no such file")]) from None
    except WrongLine as wrong:
        fault = Fault(str(path), wrong.number, wrong.key, wrong.reason)
        raise ConfigError([fault]) from wrong
