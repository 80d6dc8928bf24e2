"""What all sections of the configuration share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """A frozen section that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def fault_at(key: tuple[str, ...], what: str) -> PydanticCustomError:
    """A fault of a key below the section whose validator raises it."""
    return PydanticCustomError("fault_at", "{what}", {"what": what, "key": key})
