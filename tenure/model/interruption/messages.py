"""AWS events of instances, from EventBridge messages and DescribeInstanceStatus (reference: karpenter-aws 5)."""

from datetime import datetime
from typing import Final, Literal

from pydantic import AwareDatetime

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
"""Names in a LifecyclePolicy. `scheduledChange` comes from two sources: AWS Health and an instance's status."""

MessageStatus = Literal["announced", "withdrawn", "over"]
"""`withdrawn`: AWS cancelled the event. `over`: the event is complete, or the status check passes again."""
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
"""The message type in Karpenter's metrics, by kind and source."""


class InterruptionMessage(Message):
    """One AWS event of one instance. A repeated event has the same kind and id."""

    kind: EventKind
    id: str
    """AWS's ID (eventArn, InstanceEventId), or an ID derived from fields that are the same in a repeated message."""
    source: Literal["queue", "status"] = "queue"
    at: AwareDatetime
    """When AWS reported it, or when it was first seen."""
    starts: AwareDatetime | None = None
    """When AWS acts; None: immediately, or unknown."""
    ends: AwareDatetime | None = None
    """The end of the time window in which AWS may act."""
    code: str = ""
    """AWS's event code, such as `instance-retirement` or AWS_EC2_INSTANCE_STOP_SCHEDULED."""
    status: MessageStatus = "announced"
    text: str = ""
    """AWS's description, for display only."""


class InterruptionMessages(Message):
    """Signal `interruption_events` to a NodeClaim. Messages may be repeated and arrive in any order."""

    instance_id: str
    messages: tuple[InterruptionMessage, ...]
    evicted_pods: tuple[str, ...] = ()


CheckKind = Literal["instanceStatus", "systemStatus"]


class FailedCheck(Value):
    kind: CheckKind
    since: datetime | None = None
    """ImpairedSince; None if EC2 does not report it."""


class StatusReport(Value):
    instance_id: str
    failed_checks: tuple[FailedCheck, ...] = ()
    events: tuple[InterruptionMessage, ...] = ()
    """Scheduled events; `at` is the time of the read."""


class OpenInterruption(Message):
    instance_id: str
    message: InterruptionMessage
