"""From chat messages to token ids, with the model's own template."""

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, cast

from jinja2 import TemplateError
from transformers import AutoTokenizer

from ddtree.server.errors import BadRequest
from ddtree.server.schema import Message

# Unicode reserves U+FDD0 to U+FDEF for a program's own use; no text for interchange has them.
_NONCHARACTERS: Final = [chr(code) for code in range(0xFDD0, 0xFDF0)]


class AddedToken(Protocol):
    """One entry of a tokenizer's `added_tokens_decoder`."""

    content: str
    special: bool


class Tokenizer(Protocol):
    """What the server needs of a transformers tokenizer."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]:
        """Added tokens by id."""
        ...

    def encode(self, text: str, **kwargs: object) -> list[int]:
        """Token ids of `text`."""
        ...

    def decode(self, token_ids: Sequence[int], **kwargs: object) -> str:
        """Text of `token_ids`."""
        ...

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: object) -> str:
        """The prompt of `conversation`, as text with `tokenize=False`."""
        ...


def load_tokenizer(model_path: Path) -> Tokenizer:
    """The tokenizer in a model's folder; raises ValueError or OSError if there is none."""
    tokenizer: Any = AutoTokenizer.from_pretrained(model_path, local_files_only=True)
    # The annotations of transformers say less than what its tokenizers return.
    return cast(Tokenizer, tokenizer)


class ChatPrompts:
    """Renders messages to token ids; special tokens written in a message stay plain text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.added_tokens_decoder.items()
        self._tokenizer = tokenizer
        self._reserved = frozenset(inspect.signature(tokenizer.apply_chat_template).parameters)
        self._special_ids = {token.content: id_ for id_, token in added if token.special}
        # Longest first, so that a token that starts another one does not hide it.
        names = sorted(self._special_ids, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, names)) if names else r"(?!)")

    def token_ids(self, messages: Sequence[Message], options: Mapping[str, object]) -> list[int]:
        """Prompt of `messages`, ready for the answer; `options` go to the template.

        Raises:
            BadRequest: the template refuses the messages.
        """
        contents = [message.content_text() for message in messages]
        if not any(self._special.search(content) for content in contents):
            prompt = self._render(messages, contents, options)
            return self._tokenizer.encode(prompt, add_special_tokens=False)
        mark = _unused_character(contents)
        marked = [self._special.sub(lambda m: _split_by(mark, m[0]), c) for c in contents]
        return self._encode_marked(self._render(messages, marked, options), mark)

    def _render(
        self, messages: Sequence[Message], contents: Sequence[str], options: Mapping[str, object]
    ) -> str:
        turns = [
            {"role": message.role, "content": content}
            for message, content in zip(messages, contents, strict=True)
        ]
        if taken := self._reserved & options.keys():
            raise BadRequest(f"chat_template_kwargs: {', '.join(sorted(taken))} is not an option")
        given: dict[str, object] = {"tokenize": False, "add_generation_prompt": True}
        try:
            return self._tokenizer.apply_chat_template(turns, **{**options, **given})
        except (TemplateError, ValueError, TypeError) as error:
            raise BadRequest(f"the model's chat template refuses the messages: {error}") from error

    def _encode_marked(self, prompt: str, mark: str) -> list[int]:
        """Encode `prompt`: unbroken special tokens are the template's, all else is text."""
        ids: list[int] = []
        at = 0
        for match in self._special.finditer(prompt):
            ids += self._encode_text(prompt[at : match.start()].replace(mark, ""))
            ids.append(self._special_ids[match[0]])
            at = match.end()
        return ids + self._encode_text(prompt[at:].replace(mark, ""))

    def _encode_text(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)


def _split_by(mark: str, token: str) -> str:
    """`token` with `mark` after each character, so that no special token is left in it."""
    return "".join(character + mark for character in token)


def _unused_character(texts: Sequence[str]) -> str:
    for candidate in _NONCHARACTERS:
        if not any(candidate in text for text in texts):
            return candidate
    raise BadRequest("the messages use all Unicode noncharacters; leave out U+FDD0 to U+FDEF")
