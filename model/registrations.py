"""How a NodePool's NodeClaims came to be Nodes lately: told by those that failed, read from those that registered."""

from datetime import datetime

from model.base import Message


class StartEnded(Message):
    """The end of one NodeClaim's start. Also a signal to the NodePool's workflow, from one that failed."""

    uid: str
    at: datetime
    registered: bool = False
    reason: str = ""
    message: str = ""


class Registrations(Message):
    outcomes: tuple[StartEnded, ...] = ()
    """The last few, oldest first."""
    since: datetime | None = None
    """When the NodePool or its NodeClass last changed: what ended before counts no more."""
    generation: int = 0
    class_generation: int = 0
