"""What a NodeClaim's workflow remembers of AWS's notices, and what people said of them.

It is carried in the workflow's state, and stands as an annotation on the NodeClaim, since no other object holds it.
"""

from datetime import datetime
from typing import Literal

from model.base import Message, Value
from model.interruptions import EventKind, Notice
from model.steps import ClaimRef


class Answer(Message):
    """What a person said of an event that waits for approval."""

    approved: bool
    by: str
    reason: str = ""
    at: datetime


class Remembered(Message):
    """A notice, as it was told last."""

    notice: Notice
    heard: datetime
    """When it was told first."""
    moved_from: datetime | None = None
    """When AWS meant to act before it moved that."""
    moved: datetime | None = None
    """When it was told that AWS did, last."""
    own: Notice | None = None
    """What its source said itself last, where the other source has told since that AWS moved the event."""
    answer: Answer | None = None
    done: bool = False
    """What its policy has for it was done, and the node was kept."""


class Event(Value):
    """One thing that AWS does, or finds: the notices that tell of the same."""

    key: str
    """Of one node's events."""
    kind: EventKind
    reason: str
    """The word of Karpenter's metrics."""
    heard: datetime
    starts: datetime | None = None
    ends: datetime | None = None
    code: str = ""
    text: str = ""
    status: Literal["announced", "withdrawn", "over"] = "announced"
    moved_from: datetime | None = None
    moved: datetime | None = None
    answer: Answer | None = None
    done: bool = False


class StopStart(Message):
    """An instance that is stopped and started for an event, so that it moves to other hardware."""

    key: str
    """Of the event."""
    step: Literal["drain", "stop", "start", "back", "done", "failed"] = "drain"
    since: datetime
    boot_id: str = ""
    """Of the machine before."""
    deadline: datetime | None = None
    """When it has to be back; known once it is to be stopped."""
    until: datetime | None = None
    """When it was back, or was waited for no more."""


class ApproveEvent(Message):
    """Let a node go that waits for approval; update `approve_event`, and signal `event_approved`."""

    by: str
    reason: str = ""


class RejectEvent(Message):
    """Keep it, for as long as its policy lets that be; update `reject_event`, and signal `event_rejected`."""

    by: str
    reason: str = ""


class Said(Message):
    """An event of Kubernetes."""

    reason: str
    message: str
    warning: bool = True


class NoticesTold(Message):
    """What is to be said of a node's notices, and what is to be written down."""

    claim: ClaimRef
    said: tuple[Said, ...] = ()
    """On the NodeClaim and on its Node."""
    write: bool = False
    text: str = ""
    """The annotation; empty: it is taken off."""
    expected_back: datetime | None = None
    """Until when a stopped instance is; None: it is not away, or not waited for."""
