"""The one base class of every value: frozen, strict about names, cheap to send and to hold."""

from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict

_NOT_REMEMBERED: Final[set[str]] = set()


class _Held(BaseModel):
    """Nobody asks which fields were given, and a set of their names for each value would be half of what it takes."""

    def model_post_init(self, context: Any, /) -> None:
        object.__setattr__(self, "__pydantic_fields_set__", _NOT_REMEMBERED)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        object.__setattr__(copied, "__pydantic_fields_set__", _NOT_REMEMBERED)
        return copied


class Value(_Held):
    """A frozen value; an unknown field name is an error at construction."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Message(_Held):
    """A value that crosses time: stored in histories, so fields an older or newer version knows are let pass."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)
