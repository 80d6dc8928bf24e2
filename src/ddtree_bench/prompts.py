"""Prompt files: what is asked, read from JSON Lines and drawn the same for every server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ddtree_bench.config.suggest import nearest
from ddtree_bench.errors import ConfigError, Fault
from ddtree_bench.workloads.tools import TOOLS

Text = Annotated[str, Field(min_length=1)]


class _Line(BaseModel):
    """Part of a line; refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JsonCheck(_Line):
    """The answer is JSON, bare or in a fence."""

    kind: Literal["json"]


class JsonSchemaCheck(_Line):
    """The answer is JSON that a schema accepts."""

    kind: Literal["json_schema"]
    # `schema` is taken by pydantic
    json_schema: dict[str, Any] = Field(alias="schema")


class PythonCheck(_Line):
    """The answer is Python that defines a function or class; it is parsed, never run."""

    kind: Literal["python"]


class YamlCheck(_Line):
    """The answer is a YAML mapping or list, bare or in a fence."""

    kind: Literal["yaml"]


class ContainsCheck(_Line):
    """The answer holds all these texts, in either case."""

    kind: Literal["contains"]
    texts: Annotated[tuple[Text, ...], Field(min_length=1)]


PromptCheck = Annotated[
    JsonCheck | JsonSchemaCheck | PythonCheck | YamlCheck | ContainsCheck,
    Field(discriminator="kind"),
]


class Prompt(_Line):
    """One line of a prompt file."""

    id: Text
    turns: Annotated[tuple[Text, ...], Field(min_length=1)]
    """What the user says, one request each; the server's own replies go in between."""
    system: Text | None = None
    tags: dict[str, str] = {}
    check: PromptCheck | None = None
    """What the last answer must be."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the model may call; with any, the prompt is a tool loop."""
    pinned: bool = False
    """Part of every sample, however small."""

    @field_validator("tools")
    @classmethod
    def _tools_exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in TOOLS:
                raise ValueError(f'no tool is called "{name}"{nearest(name, TOOLS)}')
        return names


def load_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a file, in its order.

    Raises:
        ConfigError: the file is missing or empty, or lines are no prompts; holds all faults.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise ConfigError([Fault(str(path), None, "", "there is no such file")]) from None
    parsed = [
        _prompt(str(path), number, line) for number, line in enumerate(lines, 1) if line.strip()
    ]
    faults = [each for each in parsed if isinstance(each, Fault)]
    prompts = [each for each in parsed if isinstance(each, Prompt)]
    faults += _repeated_ids(str(path), prompts)
    if not parsed:
        faults.append(Fault(str(path), None, "", "holds no prompt; one JSON object a line"))
    if faults:
        raise ConfigError(faults)
    return tuple(prompts)


def _prompt(file: str, number: int, line: str) -> Prompt | Fault:
    try:
        return Prompt.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        return Fault(file, number, "", f"not JSON: {error.msg} at column {error.colno}")
    except ValidationError as error:
        detail = error.errors()[0]
        key = ".".join(str(part) for part in detail["loc"])
        return Fault(file, number, key, _what(detail))


def _what(detail: Mapping[str, Any]) -> str:
    if detail["type"] == "extra_forbidden":
        return "unknown key" + nearest(str(detail["loc"][-1]), Prompt.model_fields)
    return str(detail["msg"]).removeprefix("Value error, ")


def _repeated_ids(file: str, prompts: Sequence[Prompt]) -> list[Fault]:
    ids = [prompt.id for prompt in prompts]
    return [
        Fault(file, None, "id", f'"{name}" is used {ids.count(name)} times; make ids unique')
        for name in dict.fromkeys(ids)
        if ids.count(name) > 1
    ]


def draw(prompts: Sequence[Prompt], sample: int | Literal["all"], seed: int) -> tuple[Prompt, ...]:
    """A fixed sample: pinned prompts first, then by a hash of seed and id.

    The same prompts are drawn whatever their order in the file, and a smaller sample is the
    beginning of a larger one.

    Raises:
        ConfigError: more are asked for than there are.
    """
    ordered = sorted(prompts, key=lambda prompt: (not prompt.pinned, _place(prompt.id, seed)))
    if sample == "all":
        return tuple(ordered)
    if sample > len(ordered):
        what = f"{sample} prompts asked for, there are {len(ordered)}; lower it or write `all`"
        raise ConfigError([Fault("prompts", None, "sample", what)])
    return tuple(ordered[:sample])


def _place(name: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()
