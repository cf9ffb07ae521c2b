"""The Interruption workflow: what it remembers, and what passes between it and the activities that read for it."""

from datetime import datetime

from model.base import Message
from model.status_reports import OpenNotice


class SourceState(Message):
    """How the reading of one source goes."""

    failing_since: datetime | None = None
    """None: it can be read, as far as is known."""
    tries: int = 0
    """In vain, one after the other."""
    fault: str = ""
    """The last one, also when it is over."""
    fault_at: datetime | None = None


class InterruptionState(Message):
    """The input of the workflow, and its whole state."""

    cluster: str
    queue: str = ""
    """The name of the SQS queue; empty: there is none, and instances' status is the only source."""
    messages: SourceState = SourceState()
    statuses: SourceState = SourceState()
    told: tuple[OpenNotice, ...] = ()
    """What nodes were told by their instances' status, and what is not over yet."""
    status_read: datetime | None = None


class QueueNamed(Message):
    """Signal `queue_named`: what the setting INTERRUPTION_QUEUE of a worker that just started says."""

    queue: str


class QueueAsked(Message):
    """Read this queue until it cannot be read."""

    queue: str


class StatusAsked(Message):
    """Read instances' status every minute, until there is something to remember."""

    told: tuple[OpenNotice, ...] = ()
    last: datetime | None = None
    """When it was read last."""


class ReadingEnded(Message):
    """Why a source is not read any more, or what is to be remembered of it."""

    fault: str = ""
    """Empty: nothing is wrong, and reading is to go on."""
    told: tuple[OpenNotice, ...] = ()
    """Of instances' status: what is open now."""
    last: datetime | None = None
