"""Parsed queue messages, and the AWS events that workflows keep.

A NodeClaim workflow keeps its events in three places: its state; an annotation of the NodeClaim, since no other object
holds them; and its memo, so that `tenure events` lists them without a worker or a call per node.
"""

from datetime import datetime
from typing import Final, Literal

from tenure.model.base import Message, Value
from tenure.model.interruption.messages import (
    KARPENTERS_KINDS,
    EventKind,
    InterruptionMessage,
    MessageStatus,
    OpenInterruption,
)
from tenure.model.nodeclaim.requests import NodeClaimRef

NOTHING: Final = "no_op"
"""Karpenter's message type for a message that needs no action."""

Dropped = Literal["", "malformed", "unknown", "unwanted"]
"""`malformed`: it cannot be read; `unknown`: a kind that no rule of ours sends; `unwanted`: a kind that we know, about
something that concerns no node, such as an instance that runs now."""


class InstanceInterruption(Value):
    instance_id: str
    message: InterruptionMessage


class ParsedEvent(Value):
    interruptions: tuple[InstanceInterruption, ...] = ()
    at: datetime
    """When it happened; when it was sent where the body does not say."""
    dropped: Dropped = ""
    why: str = ""

    @property
    def kind(self) -> EventKind | None:
        return self.interruptions[0].message.kind if self.interruptions else None

    @property
    def message_type(self) -> str:
        """As Karpenter's metrics name it."""
        return KARPENTERS_KINDS[self.kind, "queue"] if self.kind else NOTHING


class QueueMessage(Value):
    """One message, invisible to others for a while; it comes again unless it is deleted."""

    id: str
    receipt: str
    """The handle to delete the message; valid until its next delivery."""
    sent: datetime
    first_received: datetime
    """When anyone read it for the first time."""
    parsed: ParsedEvent


MEMO: Final = "TenureEvents"
"""The memo's field: a list of `EventRecord`, the oldest first."""


class EventRecord(Message):
    kind: EventKind
    code: str = ""
    received_at: datetime
    starts: datetime | None = None
    status: MessageStatus = "announced"
    policy: str = ""
    """The LifecyclePolicies that say something of the kind; empty: none does, and Karpenter's table holds."""
    action: str
    done: str
    waits: bool = False
    since: datetime


class MessageCounts(Message):
    """Outcomes of queue messages, as counted by the activity that reads the queue."""

    since: datetime
    counts: dict[str, int] = {}
    """`received`, `deleted`, and by the words of tenure_interruption_messages_dropped_total why one was
    dropped."""


class ApprovalDecision(Message):
    approved: bool
    by: str
    reason: str = ""
    at: datetime


class TrackedInterruption(Message):
    message: InterruptionMessage
    received_at: datetime
    moved_from: datetime | None = None
    """When AWS meant to act before it moved that."""
    moved: datetime | None = None
    own: InterruptionMessage | None = None
    """The last message of its own source, if the other source has since reported that AWS moved the event."""
    decision: ApprovalDecision | None = None
    done: bool = False


class Event(Value):
    """One action or finding of AWS: all messages about it."""

    key: str
    kind: EventKind
    reason: str
    received_at: datetime
    starts: datetime | None = None
    ends: datetime | None = None
    code: str = ""
    text: str = ""
    status: MessageStatus = "announced"
    moved_from: datetime | None = None
    moved: datetime | None = None
    decision: ApprovalDecision | None = None
    done: bool = False


class InstanceStopStart(Message):
    """An instance that is stopped and started for an event, so that it moves to other hardware."""

    key: str
    step: Literal["drain", "stop", "start", "back", "done", "failed"] = "drain"
    since: datetime
    boot_id: str = ""
    deadline: datetime | None = None
    """When it must be back; set once it is to be stopped."""
    until: datetime | None = None


class ApproveEvent(Message):
    """Let a node go that waits for approval; update `approve_event`, and signal `approve_event`."""

    by: str
    reason: str = ""


class RejectEvent(Message):
    """Keep it, for as long as its policy lets that be; update `reject_event`, and signal `reject_event`."""

    by: str
    reason: str = ""


class EventText(Message):
    reason: str
    message: str


class InterruptionNotification(Message):
    claim: NodeClaimRef
    events: tuple[EventText, ...] = ()
    write: bool = False
    text: str = ""
    """The annotation; empty: it is taken off."""
    maintenance_until: datetime | None = None
    """End of the maintenance stop of an instance; None: the instance is not stopped or not awaited."""


class SourceState(Message):
    failing_since: datetime | None = None
    """None: it can be read, as far as is known."""
    failed_attempts: int = 0
    fault: str = ""
    fault_at: datetime | None = None


class InterruptionState(Message):
    """The input of the workflow, and its whole state."""

    cluster: str
    queue: str = ""
    """The name of the SQS queue; empty: there is none, and instances' status is the only source."""
    messages: SourceState = SourceState()
    statuses: SourceState = SourceState()
    open_interruptions: tuple[OpenInterruption, ...] = ()
    status_read: datetime | None = None


class QueueSetting(Message):
    """The queue that an activity reads; signal `set_queue`: INTERRUPTION_QUEUE of a worker that just started."""

    queue: str


class InstanceStatusRequest(Message):
    open_interruptions: tuple[OpenInterruption, ...] = ()
    last: datetime | None = None


class SourceReadResult(Message):
    fault: str = ""
    """Empty: nothing is wrong, and reading is to go on."""
    open_interruptions: tuple[OpenInterruption, ...] = ()
    last: datetime | None = None
