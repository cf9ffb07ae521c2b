"""Nodes with interruption events."""

from datetime import datetime, timedelta
from typing import Any

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.interruption.messages import EventKind, InterruptionMessage
from tenure.model.interruption.records import ApprovalDecision, TrackedInterruption
from tenure.model.launch import LaunchedInstance
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.interruption.events import event_key
from tests.unit.policy.builders import NOW, after, before, node

SUNDAYS: dict[str, Any] = {"schedule": "0 2 * * 0", "duration": "2h", "timeZone": "Europe/Berlin"}
STATEFUL: dict[str, Any] = {"matchLabels": {"example.com/state": "kept"}, "action": "waitForApproval"}
DEFERRED: dict[str, Any] = {"action": "deferUntilEventStart", "lead": "1h"}
APPROVAL: dict[str, Any] = {"action": "waitForApproval", "lead": "1h"}
DEFER = {"scheduledChange": DEFERRED}
DRAIN_RECOMMENDED = {"rebalanceRecommendation": {"action": "drain"}}
KARPENTER_DEFAULTS: dict[EventKind, str] = {
    "spotInterruption": "drain",
    "capacityReservationInterruption": "drain",
    "rebalanceRecommendation": "nothing",
    "scheduledChange": "drain",
    "instanceStopping": "drain",
    "instanceTerminating": "drain",
    "instanceStatus": "terminate",
    "systemStatus": "terminate",
}
WHY = "LifecyclePolicy p is invalid, so maintenance waits until it can: spec.interruption.scheduledChange: no"
UNREAD = {"events_unread": WHY}
TWO_DAYS = after(hours=48)
YES = ApprovalDecision(approved=True, by="ann", at=NOW)
NO = ApprovalDecision(approved=False, by="bob", reason="quarter's end", at=NOW)


def interruption_message(kind: EventKind = "scheduledChange", **fields: Any) -> InterruptionMessage:
    code = "instance-retirement" if kind == "scheduledChange" else ""
    defaults = {"kind": kind, "id": f"id-{kind}", "at": before(minutes=5), "code": code}
    return InterruptionMessage.model_validate({**defaults, **fields})


def tracked_interruptions(
    *messages: InterruptionMessage, decision: ApprovalDecision | None = None, at: datetime | None = None
) -> tuple[TrackedInterruption, ...]:
    return tuple(
        TrackedInterruption(message=one, received_at=at or before(minutes=5), decision=decision) for one in messages
    )


def rules(**interruption: Any) -> LifecycleRules:
    return LifecycleRules.model_validate({"interruption": interruption})


def node_with_events(
    *messages: InterruptionMessage,
    event_rules: dict[str, Any] | None = None,
    decision: ApprovalDecision | None = None,
    **state: Any,
) -> NodeClaimState:
    """A ready on-demand node with these events. `event_rules` are the interruption rules of its policy."""
    observed = {"rules": rules(**event_rules) if event_rules else None, **state.pop("observed", {})}
    defaults = {
        "initialized": True,
        "launched": launched("on-demand"),
        "interruptions": tracked_interruptions(*messages, decision=decision),
    }
    return node(observed, **{**defaults, **state})


def launched(capacity_type: str) -> LaunchedInstance:
    return LaunchedInstance(
        claim_uid="uid-a",
        provider_id="aws:///us-west-2a/i-1",
        instance_type="m7i.large",
        zone="us-west-2a",
        capacity_type=capacity_type,
        image_id="ami-1",
    )


def drained_for(one: InterruptionMessage, **fields: Any) -> NodeClaimState:
    return node_with_events(one, interrupted=event_key(one), **fields)


def in_days(days: float) -> datetime:
    return NOW + timedelta(days=days)


IN_TWO_DAYS = interruption_message(starts=TWO_DAYS)


def approval(**fields: Any) -> dict[str, Any]:
    return {"scheduledChange": {**APPROVAL, **fields}}
