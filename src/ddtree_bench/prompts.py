"""Prompt files: what is asked, read from a file and drawn the same for every server."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from ddtree_bench.config import FILLING, Workload
from ddtree_bench.config.suggest import nearest
from ddtree_bench.errors import ConfigError, Fault
from ddtree_bench.hashing import json_sha256
from ddtree_bench.prompt_sets import Adapter, adapter_of
from ddtree_bench.replies import read_replies
from ddtree_bench.workloads.tools import TOOLS

ARRIVED = "timestamp_s"
"""Tag of prompts from a trace: seconds at which the request came."""
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


class NumberCheck(_Line):
    """The last number of the answer is this one."""

    kind: Literal["number"]
    value: float


class BoxedCheck(_Line):
    r"""The last `\boxed{}` of the answer holds this, as `workloads.formulas` compares."""

    kind: Literal["boxed"]
    answer: Text


class SqlCheck(_Line):
    """The answer is one SQL statement that SQLite accepts for these tables; it is never run."""

    kind: Literal["sql"]
    tables: Text
    """`CREATE TABLE` statements."""


class ExpectedCall(_Line):
    """A tool call; of each argument the values that are right, `""` among them: may be left out."""

    tool: Text
    arguments: dict[str, tuple[Any, ...]] = {}


class CallsCheck(_Line):
    """The answer is a JSON list of exactly these calls, in any order."""

    kind: Literal["calls"]
    calls: Annotated[tuple[ExpectedCall, ...], Field(min_length=1)]


class RecordedCall(ExpectedCall):
    """A right call with what it gave, once, when the prompt was made."""

    result: str


class PythonTestsCheck(_Line):
    """The answer is Python that passes tests where `run_code` is set, else it is parsed."""

    kind: Literal["python_tests"]
    entry_point: Text
    """The function that the answer must define."""
    prelude: str = ""
    """Code before the answer, such as imports."""
    tests: Text
    """Code that defines `check(candidate)`, which raises if a test fails."""


PromptCheck = Annotated[
    JsonCheck
    | JsonSchemaCheck
    | PythonCheck
    | YamlCheck
    | ContainsCheck
    | NumberCheck
    | BoxedCheck
    | SqlCheck
    | CallsCheck
    | PythonTestsCheck,
    Field(discriminator="kind"),
]


class Prompt(_Line):
    """One line of a prompt file."""

    id: Text
    turns: Annotated[tuple[Text, ...], Field(min_length=1)]
    """What the user says, one request each; replies go in between."""
    replies: tuple[str, ...] = ()
    """Recorded answers, one a request, for workloads with `history: recorded`; a file of replies
    adds those that are not here.
    """
    answer_start: str = ""
    """Text with which the answer begins (route `generate`); the server goes on from there."""
    system: Text | None = None
    tags: dict[str, str] = {}
    check: PromptCheck | None = None
    """What the last answer must be."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the model may call; with any, the prompt is a tool loop."""
    recorded_calls: tuple[tuple[RecordedCall, ...], ...] = ()
    """Of each turn the right calls, in order; with any, the prompt is a replay of them."""
    pinned: bool = False
    """Part of every sample, however small."""

    @model_validator(mode="after")
    def _one_answer_is_started(self) -> Self:
        if self.answer_start and (len(self.turns) > 1 or self.tools):
            raise ValueError("`answer_start` is for a prompt with a single answer")
        return self

    @property
    def goes_on(self) -> bool:
        """Whether a reply may be followed by another request."""
        return len(self.turns) > 1 or bool(self.tools or self.recorded_calls)

    @property
    def questions_sha256(self) -> str:
        """Hash of what is asked, to which recorded replies belong."""
        asked = self.model_dump(include={"turns", "system", "tools", "recorded_calls"})
        return json_sha256(asked)

    @property
    def arrived_s(self) -> float | None:
        """When the request once came, by its tag `timestamp_s`; None if that is no time."""
        try:
            at_s = float(self.tags[ARRIVED])
        except (KeyError, ValueError):
            return None
        return at_s if math.isfinite(at_s) else None

    @field_validator("tools")
    @classmethod
    def _tools_exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in TOOLS:
                raise ValueError(f'no tool is called "{name}"{nearest(name, TOOLS)}')
        return names

    @model_validator(mode="after")
    def _calls_belong_to_turns(self) -> Self:
        calls = len(self.recorded_calls)
        if calls not in (0, len(self.turns)):
            raise ValueError(f"`recorded_calls` of {calls} turns, there are {len(self.turns)}")
        if calls and self.tools:
            raise ValueError("`recorded_calls` replay results; leave `tools` out, which run")
        return self


def prompts_of(workload: Workload, seed: int, concurrency: int | None = None) -> tuple[Prompt, ...]:
    """The prompts that a workload asks: its file's, sampled.

    Args:
        workload: what is asked.
        seed: `protocol.seed`.
        concurrency: of one cell; None: the prompts of all its cells, those of any among them.

    Raises:
        ConfigError: a file is missing or faulty, too small, or starts answers on route `chat`.
    """
    path = Path(workload.prompts)
    in_flight = max(workload.concurrency) if concurrency is None else concurrency
    prompts = _filling(load_prompts(path, workload.prompt_format), workload, in_flight, seed)
    if workload.tool_route == "openai" and any(prompt.recorded_calls for prompt in prompts):
        what = "recorded calls are asked for as text; leave `tool_route` out, or these prompts"
        raise ConfigError([Fault(str(path), None, "recorded_calls", what)])
    untimed = [prompt.id for prompt in prompts if prompt.arrived_s is None]
    if workload.arrivals == "recorded" and untimed:
        what = f'"{untimed[0]}" has no tag `{ARRIVED}` with a time in seconds'
        raise ConfigError([Fault(str(path), None, "tags", what)])
    started = [prompt.id for prompt in prompts if prompt.answer_start]
    if started and workload.route == "chat":
        what = f'"{started[0]}": only route `generate` can start an answer'
        raise ConfigError([Fault(str(path), None, "answer_start", what)])
    return _with_replies(prompts, workload) if workload.replays else prompts


def _filling(
    prompts: Sequence[Prompt], workload: Workload, in_flight: int, seed: int
) -> tuple[Prompt, ...]:
    """The sample, or as many more as keep so many in flight; all where the file has no more.

    Raises ConfigError if the file cannot have so many in flight at all.
    """
    if len(prompts) * (workload.draws or 1) < in_flight:
        what = (
            f"{in_flight} in flight need as many prompts, there are {len(prompts)} and a cell asks "
            f"each once; lower `concurrency` or add prompts, best {FILLING} for each in flight"
        )
        raise ConfigError([Fault(workload.prompts, None, "concurrency", what)])
    sample = draw(prompts, workload.sample, seed)
    wanted = workload.sample_at(in_flight)
    return sample if wanted == workload.sample else draw(prompts, min(wanted, len(prompts)), seed)


def conversations(workload: Workload, seed: int) -> list[Prompt]:
    """Those of `prompts_of(workload, seed)` in which a reply may be followed by a request."""
    return [prompt for prompt in prompts_of(workload, seed) if prompt.goes_on]


def _with_replies(prompts: Sequence[Prompt], workload: Workload) -> tuple[Prompt, ...]:
    """The prompts, conversations without replies of their own with those of the files."""
    known = read_replies(map(Path, workload.replies))
    return tuple(
        prompt.model_copy(update={"replies": known[prompt.questions_sha256].replies})
        if prompt.goes_on and not prompt.replies and prompt.questions_sha256 in known
        else prompt
        for prompt in prompts
    )


def load_prompts(path: Path, prompt_format: str = "prompts") -> tuple[Prompt, ...]:
    """The prompts of a file, in its order; read once while it stays the same.

    Raises:
        ConfigError: the file is missing or empty, or entries are no prompts; holds all faults.
    """
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise ConfigError([Fault(str(path), None, "", "there is no such file")]) from None
    return _load_version(path, prompt_format, stat.st_size, stat.st_mtime_ns)


@cache
def _load_version(path: Path, prompt_format: str, size: int, mtime_ns: int) -> tuple[Prompt, ...]:
    adapter = adapter_of(prompt_format)
    text = path.read_text(encoding="utf-8")
    try:
        parsed = [_prompt(str(path), *entry, adapter) for entry in adapter.entries(text)]
    except json.JSONDecodeError as error:
        what = f"not JSON: {error.msg} at column {error.colno}"
        raise ConfigError([Fault(str(path), error.lineno, "", what)]) from error
    faults = [each for each in parsed if isinstance(each, Fault)]
    prompts = [each for each in parsed if isinstance(each, Prompt)]
    faults += _repeated_ids(str(path), prompts)
    if not prompts and not faults:
        faults.append(Fault(str(path), None, "", f"holds no prompt; {adapter.expected}"))
    if faults:
        raise ConfigError(faults)
    return tuple(prompts)


def _prompt(file: str, number: int, entry: str | object, adapter: Adapter) -> Prompt | Fault | None:
    """The prompt of an entry; None for an entry that holds no question."""
    try:
        fields = adapter.fields(number, json.loads(entry) if isinstance(entry, str) else entry)
        return None if fields is None else Prompt.model_validate(fields)
    except json.JSONDecodeError as error:
        return Fault(file, number, "", f"not JSON: {error.msg} at column {error.colno}")
    except ValidationError as error:
        detail = error.errors()[0]
        key = ".".join(str(part) for part in detail["loc"])
        return Fault(file, number, key, _what(detail))
    except ValueError as error:
        return Fault(file, number, "", f"{error}; expected: {adapter.expected}")


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
