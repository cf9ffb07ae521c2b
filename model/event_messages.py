"""Messages of the interruption queue, as they were read; what they say of instances is `model/interruptions.py`'s."""

from datetime import datetime
from typing import Final, Literal

from model.base import Value
from model.interruptions import KARPENTERS_KINDS, EventKind, Notice

NOTHING: Final = "no_op"
"""Karpenter's word for a message that asks for nothing."""

Dropped = Literal["", "malformed", "unknown", "unwanted"]
"""`malformed`: it cannot be read; `unknown`: a kind that no rule of ours sends; `unwanted`: a kind that we know, about
something that concerns no node, such as an instance that runs now."""


class Said(Value):
    """One notice, and the instance that it is about."""

    instance_id: str
    notice: Notice


class EventParsed(Value):
    """What a message's body says."""

    said: tuple[Said, ...] = ()
    at: datetime
    """When it happened; when it was sent where the body does not say."""
    dropped: Dropped = ""
    """Why nothing is said."""
    why: str = ""
    """The same for people."""

    @property
    def kind(self) -> EventKind | None:
        return self.said[0].notice.kind if self.said else None

    @property
    def message_type(self) -> str:
        """As Karpenter's metrics name it."""
        return KARPENTERS_KINDS[self.kind, "queue"] if self.kind else NOTHING


class QueueMessage(Value):
    """One message, invisible to others for a while; it comes again unless it is deleted."""

    id: str
    receipt: str
    """What it is deleted by; valid until it comes again."""
    sent: datetime
    first_received: datetime
    """When anyone read it for the first time."""
    parsed: EventParsed
