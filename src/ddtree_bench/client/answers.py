"""Answers out of the bodies that servers send, without I/O.

Field names are SGLang's: 0.5.17 says `spec_accept_histogram`, newer versions
`spec_correct_drafts_histogram`; `ddtree_*` comes from engines that draft trees. What a server does
not say stays None: nothing is estimated, and a missing number is never 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    ValidationError,
)

from ddtree_bench.errors import RequestError
from ddtree_bench.records import Event, SpecCounts, ToolCall, TreeCounts
from ddtree_bench.status import Status

DONE: Final = "[DONE]"
"""Data of the last event of every stream."""


@dataclass(frozen=True, slots=True)
class Message:
    """A JSON text from the server: the data of an event, or a whole body (`at_s` is None)."""

    at_s: float | None
    data: str


@dataclass(slots=True)
class Inbox:
    """Messages of one answer as they arrive, less those that a later one repeats whole.

    SGLang's native stream sends the whole answer with every token: kept and parsed, an answer of n
    tokens would cost memory and time by n², and parsing one answer would delay the times of others.
    """

    messages: list[Message] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """What is left of repeated messages; they came before `messages`."""
    _last_tokens: int | None = 0
    """Tokens of the last message while each has repeated the one before; None after another one."""

    def put(self, at_s: float | None, data: str) -> None:
        """Take the next message."""
        tokens = None if self._last_tokens is None else whole_answer_tokens(data)
        if tokens is not None and self.messages:
            self._forget(self.messages.pop())
        self._last_tokens = tokens
        self.messages.append(Message(at_s, data))

    def _forget(self, message: Message) -> None:
        told, before = self._last_tokens, self.events[-1].tokens if self.events else 0
        if message.at_s is not None and told is not None and told > before:
            self.events.append(Event(at_s=message.at_s, tokens=told))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said to one request; fields as in `RequestRecord`."""

    text: str = ""
    output_ids: tuple[int, ...] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    overshoot_tokens: int = 0
    cached_tokens: int | None = None
    retractions: int | None = None
    finish_reason: str | None = None
    spec: SpecCounts | None = None
    tree: TreeCounts | None = None
    events: tuple[Event, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()


class _Foreign(BaseModel):
    """Part of another program's answer: unknown fields are its own business."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


Counts = Annotated[tuple[NonNegativeInt, ...], Field(strict=False)]


class _FinishReason(_Foreign):
    type: str
    message: str | None = None


class _Meta(_Foreign):
    """`meta_info` of the native route, and of a chat choice where it was asked for."""

    finish_reason: _FinishReason | None = None
    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    cached_tokens: NonNegativeInt | None = None
    retractions: NonNegativeInt | None = Field(None, alias="num_retractions")
    verify_steps: NonNegativeInt | None = Field(None, alias="spec_verify_ct")
    accepted_drafts: NonNegativeInt | None = Field(
        None,
        validation_alias=AliasChoices("spec_num_correct_drafts", "spec_accepted_drafts"),
    )
    proposed_drafts: NonNegativeInt | None = Field(
        None,
        validation_alias=AliasChoices("spec_num_proposed_drafts", "spec_proposed_drafts"),
    )
    histogram: Counts | None = Field(
        None,
        validation_alias=AliasChoices("spec_correct_drafts_histogram", "spec_accept_histogram"),
    )
    verify_width: Annotated[int, Field(ge=1)] | None = Field(None, alias="ddtree_verify_width")
    nodes_by_depth: Counts | None = Field(None, alias="ddtree_nodes_by_depth")
    accepted_by_depth: Counts | None = Field(None, alias="ddtree_accepted_by_depth")
    accepted_by_rank: Counts | None = Field(None, alias="ddtree_accepted_by_rank")
    accepted_by_node: Counts | None = Field(None, alias="ddtree_accepted_by_node")
    spine_nodes: NonNegativeInt | None = Field(None, alias="ddtree_spine_nodes")
    drafting_s: NonNegativeFloat | None = Field(None, alias="ddtree_drafting_s")

    def spec(self) -> SpecCounts | None:
        """Counters of speculation; None unless steps, accepted drafts and histogram are told."""
        if self.verify_steps is None or self.accepted_drafts is None or self.histogram is None:
            return None
        return SpecCounts(
            verify_steps=self.verify_steps,
            accepted_drafts=self.accepted_drafts,
            proposed_drafts=self.proposed_drafts,
            histogram=self.histogram,
            drafting_s=self.drafting_s,
        )

    def tree(self) -> TreeCounts | None:
        """Counters of trees; None where the server drafts none."""
        if self.verify_width is None:
            return None
        return TreeCounts(
            verify_width=self.verify_width,
            nodes_by_depth=self.nodes_by_depth,
            accepted_by_depth=self.accepted_by_depth,
            accepted_by_rank=self.accepted_by_rank,
            accepted_by_node=self.accepted_by_node,
            spine_nodes=self.spine_nodes,
        )


class _Generated(_Foreign):
    text: str
    output_ids: Counts | None = None
    meta_info: _Meta


class _Function(_Foreign):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    """SGLang declares both; a stream sends pieces of text."""

    def text(self) -> str:
        """The arguments, or the next piece of them, as JSON text."""
        if isinstance(self.arguments, dict):
            return json.dumps(self.arguments, ensure_ascii=False)
        return self.arguments or ""


class _CallPiece(_Foreign):
    """A tool call, or its next piece, which has no name."""

    id: str | None = None
    function: _Function


class _Piece(_Foreign):
    """A chat choice's `message` or `delta`."""

    content: str | None = None
    tool_calls: tuple[_CallPiece, ...] | None = Field(None, strict=False)


class _Choice(_Foreign):
    message: _Piece | None = None
    delta: _Piece | None = None
    finish_reason: str | None = None
    meta_info: _Meta | None = None


_TopToken = Annotated[tuple[float | None, int, Any], Field(strict=False)]
"""Nats (null: impossible), token id, and its text where that was asked for."""
_TopTokens = Annotated[tuple[_TopToken, ...], Field(strict=False)]


class _LogprobMeta(_Foreign):
    places: tuple[_TopTokens | None, ...] = Field(alias="output_top_logprobs", strict=False)


class _WithLogprobs(_Foreign):
    output_ids: Counts
    meta_info: _LogprobMeta


class _PromptDetails(_Foreign):
    cached_tokens: NonNegativeInt | None = None


class _Usage(_Foreign):
    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Chat(_Foreign):
    choices: tuple[_Choice, ...] = Field(strict=False)
    usage: _Usage | None = None


Add = Callable[[Answer, Message], Answer]


def read(
    messages: Sequence[Message], add: Add, events: Sequence[Event] = ()
) -> tuple[Answer, RequestError | None]:
    """The answer, or as much of it as could be read and why it could not be read further.

    `events` came before the messages.
    """
    answer = Answer(events=tuple(events))
    for message in messages:
        try:
            answer = add(answer, message)
        except RequestError as error:
            return answer, error
    return answer, None


def add_generated(answer: Answer, message: Message) -> Answer:
    """The answer with one more message of SGLang's native route.

    Raises:
        RequestError: STREAM_ERROR for an error that the server reports in its answer, MALFORMED
            for another shape, BAD_COUNTS where ids and token counts differ.
    """
    part = _parse(message.data, _Generated)
    meta = part.meta_info
    reason = meta.finish_reason
    if reason is not None and reason.type == "abort":
        raise RequestError(Status.STREAM_ERROR, f"aborted: {reason.message or 'no reason given'}")
    cumulative = _is_cumulative(answer, part)
    before = answer.output_ids or ()
    return replace(
        answer,
        text=part.text if cumulative else answer.text + part.text,
        output_ids=part.output_ids if cumulative else before + (part.output_ids or ()),
        events=_with_event(answer.events, message.at_s, meta.completion_tokens),
        finish_reason=None if reason is None else reason.type,
        **_counts(meta),
    )


_IDS: Final = '"output_ids":'
_COUNT: Final = '"completion_tokens":'
_LIST: Final = re.compile(r"\s*\[\s*")
_NUMBER: Final = re.compile(r"\s*([0-9]+)")


def whole_answer_tokens(data: str) -> int | None:
    """Completion tokens of a native message that holds the ids of all of them; None for others.

    Found without parsing: inside a JSON text the quotes of these keys would be escaped.
    """
    ids_at, count_at = data.find(_IDS), data.rfind(_COUNT)
    opened = _LIST.match(data, ids_at + len(_IDS)) if ids_at >= 0 else None
    count = _NUMBER.match(data, count_at + len(_COUNT)) if count_at >= 0 else None
    if opened is None or count is None:
        return None
    start, end = opened.end(), data.find("]", opened.end())
    ids = data.count(",", start, end) + 1 if end > start else 0
    return ids if ids == int(count[1]) else None


@dataclass(frozen=True, slots=True)
class TopTokens:
    """A token of an answer, and the most likely tokens of its place, nats by id."""

    token: int
    nats: dict[int, float]


def top_tokens(data: str) -> tuple[TopTokens, ...]:
    """The places of a whole native answer that was asked for with log probabilities.

    Raises:
        RequestError: STREAM_ERROR for a reported error, MALFORMED for another shape, BAD_COUNTS
            where ids and places differ in number.
    """
    part = _parse(data, _WithLogprobs)
    places = part.meta_info.places
    if len(places) != len(part.output_ids):
        what = f"{len(part.output_ids)} output_ids, but {len(places)} output_top_logprobs"
        raise RequestError(Status.BAD_COUNTS, what)
    return tuple(
        TopTokens(token, {id_: min(nats, 0.0) for nats, id_, _ in top or () if nats is not None})
        for token, top in zip(part.output_ids, places, strict=True)
    )


def _is_cumulative(answer: Answer, part: _Generated) -> bool:
    """Whether a message repeats what came before it; servers may also send only what is new."""
    if part.output_ids is None or part.meta_info.completion_tokens is None:
        return True
    told, before = part.meta_info.completion_tokens, len(answer.output_ids or ())
    if len(part.output_ids) not in (told, told - before):
        raise RequestError(
            Status.BAD_COUNTS,
            f"{len(part.output_ids)} output_ids after {before}, "
            f"but meta_info.completion_tokens is {told}",
        )
    return len(part.output_ids) == told


def _counts(meta: _Meta) -> dict[str, Any]:
    return {
        "prompt_tokens": meta.prompt_tokens,
        "completion_tokens": meta.completion_tokens,
        "cached_tokens": meta.cached_tokens,
        "retractions": meta.retractions,
        "spec": meta.spec(),
        "tree": meta.tree(),
    }


def add_chat(answer: Answer, message: Message) -> Answer:
    """The answer with one more message of the OpenAI route.

    A chunk is an event only where its usage says how many tokens there are so far: text is never
    counted. Raises as `add_generated` does.
    """
    part = _parse(message.data, _Chat)
    if part.usage is not None:
        # the closing chunk without choices repeats the total and carries no token
        answer = _with_usage(answer, part.usage, message.at_s if part.choices else None)
    return _with_choice(answer, part.choices[0]) if part.choices else answer


def _with_usage(answer: Answer, usage: _Usage, at_s: float | None) -> Answer:
    details = usage.prompt_tokens_details
    return replace(
        answer,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=answer.cached_tokens if details is None else details.cached_tokens,
        events=_with_event(answer.events, at_s, usage.completion_tokens),
    )


def _with_choice(answer: Answer, choice: _Choice) -> Answer:
    if choice.finish_reason == "abort":
        raise RequestError(Status.STREAM_ERROR, "aborted: no reason given")
    piece = choice.message or choice.delta
    answer = replace(
        answer,
        text=answer.text + ((piece.content or "") if piece is not None else ""),
        tool_calls=_with_calls(answer.tool_calls, (piece and piece.tool_calls) or ()),
        finish_reason=choice.finish_reason or answer.finish_reason,
    )
    if choice.meta_info is None:
        return answer
    told = {key: value for key, value in _counts(choice.meta_info).items() if value is not None}
    return replace(answer, **told)


def _with_calls(calls: tuple[ToolCall, ...], pieces: Sequence[_CallPiece]) -> tuple[ToolCall, ...]:
    """The calls with more pieces: one with a name begins a call, others go on with the last."""
    for piece in pieces:
        said = piece.function.text()
        if piece.function.name:
            calls = (*calls, ToolCall(id=piece.id, name=piece.function.name, arguments=said))
        elif calls:
            last = calls[-1]
            longer = last.model_copy(update={"arguments": last.arguments + said})
            calls = (*calls[:-1], longer)
    return calls


def _with_event(
    events: tuple[Event, ...], at_s: float | None, tokens: int | None
) -> tuple[Event, ...]:
    before = events[-1].tokens if events else 0
    if at_s is None or tokens is None or tokens <= before:
        return events
    return (*events, Event(at_s=at_s, tokens=tokens))


def incomplete(answer: Answer) -> RequestError | None:
    """Why a finished answer cannot be used: no finish reason, no counts, or no tokens."""
    if answer.completion_tokens is None or answer.prompt_tokens is None:
        return RequestError(Status.NO_USAGE, "no prompt_tokens or completion_tokens in the answer")
    if answer.completion_tokens == 0:
        return RequestError(Status.NO_TOKENS, "completion_tokens is 0")
    if answer.finish_reason is None:
        return RequestError(Status.MALFORMED, "the answer ends without a finish_reason")
    return None


def cut_at_stop(
    answer: Answer, stop_ids: Collection[int], decode: Callable[[Sequence[int]], str]
) -> Answer:
    """The answer up to its first stop token, which is kept; what follows is overshoot.

    A verify step may accept drafts behind the end of the text, and some servers send them. Ids,
    counts, event times and text are cut, counters of speculation stay as the server says. Without
    ids, the answer is returned as it is.

    Args:
        answer: as read.
        stop_ids: ids of which each ends a text.
        decode: text of ids, special tokens left out; used only where something was cut.
    """
    ids = answer.output_ids or ()
    kept = next((place for place, token in enumerate(ids, 1) if token in stop_ids), None)
    if kept is None:
        return answer
    stopped = replace(answer, finish_reason="stop")
    if kept == len(ids):
        return stopped
    return replace(
        stopped,
        text=decode(ids[:kept]),
        output_ids=ids[:kept],
        completion_tokens=kept,
        overshoot_tokens=len(ids) - kept,
        events=_events_up_to(answer.events, kept),
    )


def _events_up_to(events: Sequence[Event], tokens: int) -> tuple[Event, ...]:
    kept: tuple[Event, ...] = ()
    for event in events:
        kept = _with_event(kept, event.at_s, min(event.tokens, tokens))
    return kept


def error_message(body: str) -> str:
    """What a server says in an error body: `error.message`, `message`, `detail`, or the text."""
    try:
        data = json.loads(body)
    except ValueError:
        return body.strip()
    if isinstance(data, dict):
        inner = data.get("error")
        for holder in (inner if isinstance(inner, dict) else {}, data):
            for key in ("message", "detail", "error"):
                if isinstance(holder.get(key), str):
                    return str(holder[key])
    return body.strip()


ForeignModel = TypeVar("ForeignModel", bound=_Foreign)


def _parse(data: str, shape: type[ForeignModel]) -> ForeignModel:
    try:
        tree = json.loads(data)
    except ValueError as error:
        raise RequestError(
            Status.MALFORMED, f"not JSON: {error}; it starts with {data[:80]!r}"
        ) from error
    if isinstance(tree, dict) and (tree.get("error") or tree.get("object") == "error"):
        raise RequestError(Status.STREAM_ERROR, error_message(data))
    try:
        return shape.model_validate(tree)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"]) or "the answer"
        raise RequestError(Status.MALFORMED, f"{place}: {fault['msg']}") from error
