"""What all closed vocabularies have in common: a code for files, a sentence for people."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Vocabulary(StrEnum):
    """An enumeration whose members are `CODE = "code", "sentence"`.

    A member is its code, which JSON and CSV hold; tables, report and terminal read `sentence`.
    """

    sentence: str

    def __new__(cls, code: str, sentence: str = "") -> Self:
        """Make a member whose value is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member
