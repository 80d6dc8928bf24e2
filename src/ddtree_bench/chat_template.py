"""Token ids of a conversation: a model's chat template and tokenizer, without its framework."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from ddtree_bench.errors import BenchError, MachineError

TODAY: Final = datetime.date(2025, 1, 1)
"""The date that templates print: with the real one, prompts would change overnight."""

ZERO_WIDTH_SPACE: Final = "\u200b"
PRIVATE_USE: Final = range(0xE000, 0xF900)


@dataclass(frozen=True, slots=True)
class PromptTokenizer:
    """Renders and tokenises prompts as the model's own chat template says."""

    folder: Path
    eos_ids: frozenset[int]
    """Ids of which each ends an answer."""
    vocabulary: int
    """Ids of answers lie below it: the model's own, which may be wider than its tokenizer's."""
    _template: jinja2.Template
    _specials: Mapping[str, str]
    """Special tokens by their role, for the template (`bos_token`, …)."""
    _obeying: Tokenizer
    _literal: Tokenizer
    """Reads special tokens as ordinary text."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The tokenizer of a model's folder.

        Raises:
            MachineError: a file is missing or cannot be read.
        """
        config = _json(folder, "tokenizer_config.json")
        tokenizer = _tokenizer(folder)
        literal = Tokenizer.from_str(tokenizer.to_str())
        literal.encode_special_tokens = True
        specials = _specials(config)
        return cls(
            folder=folder,
            eos_ids=_eos_ids(folder, tokenizer, specials),
            vocabulary=max(tokenizer.get_vocab_size(), _model_vocabulary(folder)),
            _template=_environment().from_string(_template_text(folder, config)),
            _specials=specials,
            _obeying=tokenizer,
            _literal=literal,
        )

    def render(
        self,
        messages: Sequence[Mapping[str, str]],
        options: Mapping[str, object] | None = None,
        answer_start: str = "",
    ) -> tuple[int, ...]:
        """Token ids `[P]` of the conversation, up to where the assistant speaks next.

        `options`: the template's own variables, such as `enable_thinking`.
        `answer_start`: what the assistant has said already.

        A special token inside a message's content becomes ordinary tokens: text cannot end its own
        turn. Without any, the whole rendered text is encoded at once, as the model's own
        framework does.

        Raises:
            BenchError: the template refuses these messages.
        """
        return (*self._conversation(messages, options), *self._encode(self._literal, answer_start))

    def _conversation(
        self, messages: Sequence[Mapping[str, str]], options: Mapping[str, object] | None
    ) -> list[int]:
        found = self._special_strings(messages)
        if not found:
            return self._encode(self._obeying, self._text(messages, options))
        marker = _unused_character(messages)
        hidden = [
            {**message, "content": _hide(message["content"], found, marker)} for message in messages
        ]
        ids: list[int] = []
        for piece in re.split(f"({marker}[0-9]+{marker})", self._text(hidden, options)):
            if piece.startswith(marker):
                ids += self._encode(self._literal, found[int(piece.strip(marker))])
            else:
                ids += self._encode(self._obeying, piece)
        return ids

    def defused(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The messages for a server that renders them itself and obeys special tokens in text.

        Each in a content is broken by a zero-width space behind its first letter.
        """
        texts = [message for message in messages if isinstance(message["content"], str)]
        found = self._special_strings(texts)
        if not found:
            return [dict(message) for message in messages]
        pattern = re.compile("|".join(map(re.escape, found)))
        return [
            {**message, "content": pattern.sub(_broken, message["content"])}
            if isinstance(message["content"], str)
            else dict(message)
            for message in messages
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out."""
        return str(self._obeying.decode(list(ids), skip_special_tokens=True))

    def _special_strings(self, messages: Sequence[Mapping[str, str]]) -> list[str]:
        """Special tokens in the messages, longest first."""
        added = self._obeying.get_added_tokens_decoder().values()
        contents = [message["content"] for message in messages]
        found = {
            token.content
            for token in added
            if token.special and any(token.content in content for content in contents)
        }
        return sorted(found, key=lambda text: (-len(text), text))

    def _text(
        self, messages: Sequence[Mapping[str, str]], options: Mapping[str, object] | None
    ) -> str:
        names = {**self._specials, **(options or {})}
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **names)
        except jinja2.TemplateError as error:
            raise BenchError(
                f"the chat template refuses these messages: {error}",
                where=str(self.folder),
                remedy="prompts that the model's template allows (some know no system message)",
            ) from error

    @staticmethod
    def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)


def _broken(hit: re.Match[str]) -> str:
    return hit[0][:1] + ZERO_WIDTH_SPACE + hit[0][1:]


def _unused_character(messages: Sequence[Mapping[str, str]]) -> str:
    used = {character for message in messages for character in message["content"]}
    return next(chr(code) for code in PRIVATE_USE if chr(code) not in used)


def _hide(text: str, found: Sequence[str], marker: str) -> str:
    """The text with each special token replaced by its number between two markers."""
    pattern = "|".join(re.escape(special) for special in found)
    return re.sub(pattern, lambda hit: f"{marker}{found.index(hit[0])}{marker}", text)


def _environment() -> ImmutableSandboxedEnvironment:
    """Jinja as Hugging Face's templates expect it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = TODAY.strftime
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:  # noqa: ANN401 - any JSON value
    """JSON without the escapes that Jinja's own filter makes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise _missing("tokenizer.json", folder)
    return Tokenizer.from_file(str(path))


def _json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object in the folder; {} where the file is missing."""
    path = folder / name
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MachineError(f"not JSON: {error}", where=str(path)) from error
    if not isinstance(data, dict):
        raise MachineError("a JSON object expected", where=str(path))
    return data


def _template_text(folder: Path, config: Mapping[str, Any]) -> str:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several named ones
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    if not isinstance(template, str):
        raise _missing("chat_template.jinja", folder)
    return template


def _specials(config: Mapping[str, Any]) -> dict[str, str]:
    """Values of the `…_token` keys, which are strings or objects with a `content`."""
    named = {key: value for key, value in config.items() if key.endswith("_token")}
    texts = {
        key: value.get("content") if isinstance(value, dict) else value
        for key, value in named.items()
    }
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _eos_ids(folder: Path, tokenizer: Tokenizer, specials: Mapping[str, str]) -> frozenset[int]:
    told = _json(folder, "generation_config.json").get("eos_token_id")
    ids = set(told if isinstance(told, list) else [told])
    if "eos_token" in specials:
        ids.add(tokenizer.token_to_id(specials["eos_token"]))
    return frozenset(token for token in ids if isinstance(token, int))


def _model_vocabulary(folder: Path) -> int:
    """Size of the model's vocabulary; 0 where the folder does not tell."""
    config = _json(folder, "config.json")
    told = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
    return told if isinstance(told, int) else 0


def _missing(name: str, folder: Path) -> MachineError:
    return MachineError(
        f"{name} is missing",
        where=str(folder),
        remedy="set `tokenizer` of the server to a folder with a tokenizer and a chat template",
    )
