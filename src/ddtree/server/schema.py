"""Request bodies: what is accepted, within which bounds, and what is refused by name."""

import json
from http import HTTPStatus
from typing import Annotated, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from ddtree.server.errors import ApiError, BadRequest

GREEDY_BELOW: Final = 1e-6
"""Temperatures below this pick the most probable token, as in SGLang."""

SEED_MAX: Final = 2**63 - 1

# SGLang's options that this engine does not have, with the values that change nothing there.
_NEUTRAL_SAMPLING: Final[dict[str, tuple[object, ...]]] = {
    "n": (1,),
    "min_p": (0,),
    "min_new_tokens": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "json_schema": (),
    "regex": (),
    "ebnf": (),
    "structural_tag": (),
    "stop_regex": (),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "no_stop_trim": (False,),
}
_NEUTRAL_GENERATE: Final[dict[str, tuple[object, ...]]] = {
    "image_data": (),
    "lora_path": (),
    "return_hidden_states": (False,),
    "return_text_in_logprobs": (False,),
    "logprob_start_len": (-1,),
}
_NEUTRAL_CHAT: Final[dict[str, tuple[object, ...]]] = {
    **_NEUTRAL_SAMPLING,
    "min_tokens": (0,),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "separate_reasoning": (True, False),
    "stream_reasoning": (True, False),
    # Recorded 0.5.17 servers take it and answer without it.
    "return_spec_tokens_details": (True, False),
}


def _without_neutral(neutral: dict[str, tuple[object, ...]]) -> BeforeValidator:
    """Drop keys that are null, or of `neutral` with a value without effect; refuse other values.

    Null is how clients say "your default".
    """

    def check(body: object) -> object:
        if not isinstance(body, dict):
            return body
        for key, harmless in neutral.items():
            if (value := body.get(key)) is not None and value not in harmless:
                raise PydanticCustomError(
                    "not_supported",
                    "{key} is not supported by this engine; leave it out",
                    {"key": key},
                )
        kept = {key: value for key, value in body.items() if value is not None}
        return {key: value for key, value in kept.items() if key not in neutral}

    return BeforeValidator(check)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


def _check_top_k(value: int) -> int:
    if value != -1 and value < 1:
        raise PydanticCustomError("top_k", "should be -1 (all tokens) or at least 1")
    return value


Temperature = Annotated[float, Field(ge=0)]
TopP = Annotated[float, Field(gt=0, le=1)]
TokenId = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, le=SEED_MAX)]
Count = Annotated[int, Field(ge=1)]
TopK = Annotated[int, AfterValidator(_check_top_k)]
Name = Annotated[str, Field(min_length=1)]
Stop = Name | list[Name] | None


class SamplingParams(_Body):
    """`sampling_params` of `/generate`, with SGLang's names and defaults."""

    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = -1
    max_new_tokens: Count = 128
    stop: Stop = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool = False
    sampling_seed: Seed | None = None

    def stop_strings(self) -> tuple[str, ...]:
        """Strings that end the text."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class GenerateRequest(_Body):
    """Body of `POST /generate`: one prompt, as text or as token ids."""

    text: str | None = None
    input_ids: list[TokenId] | None = None
    sampling_params: Annotated[SamplingParams, _without_neutral(_NEUTRAL_SAMPLING)] = (
        SamplingParams()
    )
    stream: bool = False
    rid: Name | None = None
    return_logprob: bool = False
    top_logprobs_num: Annotated[int, Field(ge=0)] = 0


class TextPart(_Body):
    """A piece of a message's content."""

    type: Literal["text"]
    text: str


class Message(_Body):
    """One turn of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart]
    name: str | None = None

    def content_text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class StreamOptions(_Body):
    """`stream_options`: which chunks carry usage."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatRequest(_Body):
    """Body of `POST /v1/chat/completions`; defaults are those of `SamplingParams`."""

    messages: list[Message]
    model: str | None = None
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = -1
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stop: Stop = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool = False
    seed: Seed | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0)] = 0
    return_meta_info: bool = False
    chat_template_kwargs: dict[str, object] = {}
    rid: Name | None = None
    user: str | None = None

    def answer_tokens(self) -> int | None:
        """Most tokens of the answer; None = as many as fit."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def sampling_params(self) -> SamplingParams:
        """The sampling part, under the names of `/generate`."""
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
            sampling_seed=self.seed,
        )


class AbortRequest(_Body):
    """Body of `POST /abort_request`."""

    rid: str | None = None
    abort_all: bool = False


T = TypeVar("T")

_GENERATE: Final = TypeAdapter[GenerateRequest](
    Annotated[GenerateRequest, _without_neutral(_NEUTRAL_GENERATE)]
)
_CHAT: Final = TypeAdapter[ChatRequest](Annotated[ChatRequest, _without_neutral(_NEUTRAL_CHAT)])
_ABORT: Final = TypeAdapter[AbortRequest](Annotated[AbortRequest, _without_neutral({})])


def parse_json(body: bytes) -> object:
    """`body` as JSON; raises BadRequest, also for NaN, half surrogates and too deep nesting."""
    try:
        parsed: object = json.loads(body, parse_constant=_refuse_constant)
        if b"\\u" in body:
            # An escape may be half of a surrogate pair, which is no text: no tokenizer takes it.
            json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    return parsed


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def check_generate(body: object) -> GenerateRequest:
    """`body` as a request to `/generate`; raises ApiError naming each fault."""
    return _check(_GENERATE, body)


def check_chat(body: object) -> ChatRequest:
    """`body` as a request to `/v1/chat/completions`; raises ApiError naming each fault."""
    return _check(_CHAT, body)


def check_abort(body: object) -> AbortRequest:
    """`body` as a request to `/abort_request`; raises ApiError naming each fault."""
    return _check(_ABORT, body)


def _check(adapter: TypeAdapter[T], body: object) -> T:
    try:
        return adapter.validate_python(body)
    except ValidationError as error:
        faults = "; ".join(_sentence(fault) for fault in error.errors())
        raise ApiError(HTTPStatus.BAD_REQUEST, f"wrong request: {faults}") from None


def _sentence(fault: ErrorDetails) -> str:
    where = ".".join(str(part) for part in fault["loc"])
    what = "unknown key" if fault["type"] == "extra_forbidden" else fault["msg"]
    return f"{where}: {what}" if where else what
