"""AWS events of instances, from EventBridge messages and DescribeInstanceStatus (reference: karpenter-aws 5)."""

from datetime import datetime
from typing import Final, Literal

from tenure.model.base import Message, Value

EventKind = Literal[
    "spotInterruption",
    "capacityReservationInterruption",
    "rebalanceRecommendation",
    "scheduledChange",
    "instanceStopping",
    "instanceTerminating",
    "instanceStatus",
    "systemStatus",
]
"""As a LifecyclePolicy names them. `scheduledChange` comes from both sources: AWS Health, and an instance's status."""

MessageStatus = Literal["announced", "withdrawn", "over"]
"""`withdrawn`: AWS cancelled it; `over`: it has been done, or the check passes again."""
KARPENTERS_KINDS: Final[dict[tuple[EventKind, str], str]] = {
    ("spotInterruption", "queue"): "spot_interrupted",
    ("capacityReservationInterruption", "queue"): "capacity_reservation_interrupted",
    ("rebalanceRecommendation", "queue"): "rebalance_recommendation",
    ("scheduledChange", "queue"): "scheduled_change",
    ("scheduledChange", "status"): "event_status",
    ("instanceStopping", "queue"): "instance_stopped",
    ("instanceTerminating", "queue"): "instance_terminated",
    ("instanceStatus", "status"): "instance_status",
    ("systemStatus", "status"): "system_status",
}
"""By kind and source: the message type in Karpenter's metrics."""


class InterruptionMessage(Message):
    """One AWS event of one instance. A repeated event has the same kind and id."""

    kind: EventKind
    id: str
    """AWS's id if there is one (eventArn, InstanceEventId); else derived from fields that a repetition does not
    change."""
    source: Literal["queue", "status"] = "queue"
    at: datetime
    """When AWS reported it, or when it was first seen."""
    starts: datetime | None = None
    """When AWS acts; None: at once, or it is not known."""
    ends: datetime | None = None
    """The end of the span in which AWS may act."""
    code: str = ""
    """AWS's code for it, such as `instance-retirement` or AWS_EC2_INSTANCE_STOP_SCHEDULED."""
    status: MessageStatus = "announced"
    text: str = ""
    """AWS's description, for display only."""


class InterruptionMessages(Message):
    """Signal `interruption_events` to a NodeClaim: messages for its instance. Repeats and any order are harmless."""

    instance_id: str
    messages: tuple[InterruptionMessage, ...]
    evicted_pods: tuple[str, ...] = ()


CheckKind = Literal["instanceStatus", "systemStatus"]


class FailedCheck(Value):
    kind: CheckKind
    since: datetime | None = None
    """ImpairedSince; None: EC2 does not say."""


class StatusReport(Value):
    instance_id: str
    failed_checks: tuple[FailedCheck, ...] = ()
    events: tuple[InterruptionMessage, ...] = ()
    """Scheduled ones; `at` is when they were read."""


class OpenInterruption(Message):
    instance_id: str
    message: InterruptionMessage
