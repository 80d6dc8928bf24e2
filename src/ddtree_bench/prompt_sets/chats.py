"""ShareGPT and OpenAI chats: the user's side of recorded conversations.

What the assistant said then is left out; the measured server answers instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ddtree_bench.prompt_sets.adapter import Adapter, Fields, list_or_lines, mapping, needed

_SHAREGPT_ROLES: Final = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "system": "system",
}
_OPENAI_ROLES: Final = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}


def _sharegpt(number: int, entry: object) -> Fields | None:
    said = needed(mapping(entry), "conversations", list)
    pairs = [
        (needed(mapping(one), "from", str), needed(mapping(one), "value", str)) for one in said
    ]
    return _fields(f"line-{number}", "sharegpt", pairs, _SHAREGPT_ROLES)


def _openai(number: int, entry: object) -> Fields | None:
    """A request's body, a line of a batch file that holds one, or a line of training data."""
    line = mapping(entry)
    body = mapping(line.get("body", line))
    messages = [mapping(message) for message in needed(body, "messages", list)]
    pairs = [(needed(message, "role", str), _text(message)) for message in messages]
    name = line.get("custom_id") or line.get("id") or f"line-{number}"
    return _fields(str(name), "openai-chat", pairs, _OPENAI_ROLES)


def _text(message: dict[str, Any]) -> str:
    """The content of a message, its text parts joined."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [mapping(part) for part in content]
        odd = [str(part.get("type")) for part in parts if part.get("type") != "text"]
        if odd:
            raise ValueError(f'"content": only text can be asked, not {odd[0]}')
        return "".join(str(needed(part, "text", str)) for part in parts)
    if content is None and message.get("role") == "assistant":  # it called a tool
        return ""
    return str(needed(message, "content", str))


def _fields(
    name: str, source: str, pairs: Iterable[tuple[str, str]], roles: dict[str, str]
) -> Fields | None:
    systems, turns = [], []
    for role, text in pairs:
        if role not in roles:
            raise ValueError(f'role "{role}" is not among {", ".join(roles)}')
        if roles[role] == "user" and text.strip():
            turns.append(text)
        elif roles[role] == "system" and text.strip():
            systems.append(text)
    if not turns:
        return None
    system = {"system": "\n".join(systems)} if systems else {}
    return {"id": name, "turns": turns, "tags": {"source": source}, **system}


SHAREGPT: Final = Adapter(
    'a JSON list or lines of objects with "conversations": [{"from": "human", "value": TEXT}, …]',
    _sharegpt,
    list_or_lines,
)
OPENAI_CHAT: Final = Adapter(
    'a JSON object a line with "messages": [{"role": "user", "content": TEXT}, …]', _openai
)
