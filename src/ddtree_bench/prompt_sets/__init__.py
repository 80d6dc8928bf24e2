"""Prompt files of other projects, read as this project's own lines.

Most of these sets are not shipped, as their licences do not allow it or do not exist; an adapter
reads the copy that the user has. It turns an entry into the keys of `ddtree_bench.prompts.Prompt`,
knows no files and decides nothing: every entry that holds a question becomes a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ddtree_bench.prompt_sets.adapter import Adapter, Fields, lines
from ddtree_bench.prompt_sets.chats import OPENAI_CHAT, SHAREGPT
from ddtree_bench.prompt_sets.maths import GSM8K, MATH_500
from ddtree_bench.prompt_sets.mooncake import MOONCAKE
from ddtree_bench.prompt_sets.questions import SPEC_BENCH, SPEED_BENCH

__all__ = ["ADAPTERS", "Adapter", "adapter_of"]


def _as_it_is(_: int, entry: object) -> Fields | None:
    # what is no mapping is told by the model that validates it
    return entry  # type: ignore[return-value]  # see above


ADAPTERS: Final[Mapping[str, Adapter]] = {
    "prompts": Adapter("one JSON object a line", _as_it_is, lines),
    "speed-bench": SPEED_BENCH,
    "spec-bench": SPEC_BENCH,
    "sharegpt": SHAREGPT,
    "openai-chat": OPENAI_CHAT,
    "mooncake": MOONCAKE,
    "gsm8k": GSM8K,
    "math-500": MATH_500,
}


def adapter_of(prompt_format: str) -> Adapter:
    """The adapter of a `format` of the configuration; KeyError if there is none."""
    return ADAPTERS[prompt_format]
