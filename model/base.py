"""The one base class of every value: frozen, strict about names, cheap to send."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value; an unknown field name is an error at construction."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Message(BaseModel):
    """A value that crosses time: stored in histories, so fields an older or newer version knows are let pass."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)
