"""Parsed queue messages, and the AWS events that workflows store.

A NodeClaim workflow stores its events in its state. A copy in an annotation of the NodeClaim survives the loss of the
workflow. `tenure events` lists a copy in the memo, without a worker or a call per node.
"""

from datetime import datetime
from typing import Final, Literal

from pydantic import AwareDatetime

from tenure.model.base import Message, Value
from tenure.model.interruption.messages import (
    KARPENTERS_KINDS,
    EventKind,
    InterruptionMessage,
    MessageStatus,
    OpenInterruption,
)
from tenure.model.nodeclaim.requests import NodeClaimRef
from tenure.model.provider_results import ConditionPatch

NOTHING: Final = "no_op"
"""Karpenter's message type for a message that needs no action."""

Dropped = Literal["", "malformed", "unknown", "unwanted"]
"""`malformed`: cannot be parsed. `unknown`: of a kind that no EventBridge rule of Tenure sends. `unwanted`: of a known
kind, but without effect on nodes, such as an instance that is now running."""


class InstanceInterruption(Value):
    instance_id: str
    message: InterruptionMessage


class ParsedEvent(Value):
    interruptions: tuple[InstanceInterruption, ...] = ()
    at: datetime
    """The time in the body, or when the message was sent."""
    dropped: Dropped = ""
    why: str = ""

    @property
    def kind(self) -> EventKind | None:
        return self.interruptions[0].message.kind if self.interruptions else None

    @property
    def message_type(self) -> str:
        """The label value in Karpenter's metrics."""
        return KARPENTERS_KINDS[self.kind, "queue"] if self.kind else NOTHING


class QueueMessage(Value):
    """A received SQS message. After its visibility timeout it is delivered again, unless it is deleted."""

    id: str
    receipt: str
    """The handle to delete the message; valid until its next delivery."""
    sent: datetime
    first_received: datetime
    """When a consumer first received it."""
    parsed: ParsedEvent


MEMO: Final = "TenureEvents"
"""The field of the memo: a list of `EventRecord`, oldest first."""


class EventRecord(Message):
    kind: EventKind
    code: str = ""
    received_at: datetime
    starts: datetime | None = None
    status: MessageStatus = "announced"
    policy: str = ""
    """The LifecyclePolicies with a rule for the kind; empty: Karpenter's defaults apply."""
    action: str
    done: str
    waits: bool = False
    since: datetime


class MessageCounts(Message):
    """Outcomes of queue messages. In the signal `add_message_counts`: those since the last signal."""

    since: datetime
    counts: dict[str, int] = {}
    """`received`, `deleted`, and the reasons of tenure_interruption_messages_dropped_total for dropped messages."""


class ApprovalDecision(Message):
    approved: bool
    by: str
    reason: str = ""
    at: AwareDatetime


class TrackedInterruption(Message):
    message: InterruptionMessage
    received_at: AwareDatetime
    moved_from: AwareDatetime | None = None
    """The start time before AWS moved it."""
    moved: AwareDatetime | None = None
    own: InterruptionMessage | None = None
    """The last message of its own source, if the other source has since reported that AWS moved the event."""
    decision: ApprovalDecision | None = None
    done: bool = False


class Event(Value):
    """An action or a failed status check of AWS, merged from all messages about it."""

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
    """When the instance must be running again; set before it is stopped."""
    until: datetime | None = None


class ApproveEvent(Message):
    """Approve the pending event of a node. Update and signal `approve_event`."""

    by: str
    reason: str = ""


class RejectEvent(Message):
    """Reject the pending event of a node, which then stays as long as its policy allows. Update and signal
    `reject_event`."""

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
    """Value of the annotation; empty removes the annotation."""
    maintenance_until: datetime | None = None
    """End of the maintenance stop of an instance; None: the instance is not stopped or not awaited."""
    node_conditions: tuple[ConditionPatch, ...] = ()
    """Changed lifecycle conditions of the Node."""


class SourceState(Message):
    failing_since: datetime | None = None
    """None if the last read succeeded, or there was none."""
    fault: str = ""
    fault_at: datetime | None = None


class InterruptionState(Message):
    """Input and complete state of the workflow."""

    cluster: str
    queue: str = ""
    """Name of the SQS queue; empty: without a queue, instance status is the only source."""
    messages: SourceState = SourceState()
    statuses: SourceState = SourceState()
    open_interruptions: tuple[OpenInterruption, ...] = ()
    message_counts: MessageCounts | None = None


class QueueSetting(Message):
    """INTERRUPTION_QUEUE of a worker that has started. Signal `set_queue`."""

    queue: str


class SourceReport(Message):
    """The result of reading a source. Signal `report_source`."""

    source: Literal["messages", "statuses"]
    fault: str = ""
    """Empty after a minute of successful reads."""
    at: datetime


class OpenInterruptions(Message):
    """The open messages of the instance status. Signal `report_open_interruptions`."""

    open_interruptions: tuple[OpenInterruption, ...] = ()
