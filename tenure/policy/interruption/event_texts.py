"""Texts about AWS events of a node: Kubernetes events, conditions of the Node, records, and responses to operators.

Reasons are Karpenter's (karpenter-aws 5.3). A Kubernetes event is published once per topic and change, and not for
kinds that the policy ignores. The text of a record changes only with the next action, so a waiting node causes no
writes.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from tenure.apis import labels
from tenure.model.interruption.messages import EventKind
from tenure.model.interruption.records import ApprovalDecision, Event, EventRecord, EventText
from tenure.model.nodeclaim.state import TERMINATING_PHASES, NodeClaimState
from tenure.model.provider_results import ConditionPatch
from tenure.model.signals import OperatorRequestResult
from tenure.policy.interruption.decision import (
    EventAction,
    approvable_events,
    decide_event,
    decide_interruption,
    describe_event,
    is_under_way,
    live_events,
    retained_until,
)
from tenure.policy.interruption.events import events_of
from tenure.policy.interruption.rules import resolve_event_policy

REASONS: Final[Mapping[EventKind, str]] = {
    "spotInterruption": "SpotInterrupted",
    "capacityReservationInterruption": "CapacityReservationInstanceInterrupted",
    "rebalanceRecommendation": "SpotRebalanceRecommendation",
    "scheduledChange": "InstanceUnhealthy",
    "instanceStopping": "InstanceStopping",
    "instanceTerminating": "InstanceTerminating",
    "instanceStatus": "InstanceUnhealthy",
    "systemStatus": "InstanceUnhealthy",
}
_KARPENTER_MESSAGES: Final[Mapping[str, str]] = {
    "SpotInterrupted": "Spot interruption warning was triggered",
    "CapacityReservationInstanceInterrupted": "Capacity reservation interruption warning was triggered",
    "SpotRebalanceRecommendation": "Spot rebalance recommendation was triggered",
    "InstanceUnhealthy": "An unhealthy warning was triggered for the instance",
    "InstanceStopping": "Instance is stopping",
    "InstanceTerminating": "Instance is terminating",
    "TerminatingOnInterruption": "Interruption triggered termination for the Node",
}
"""By reason: how Karpenter's message begins, so that rules on messages match too."""
_OUTCOMES: Final = {
    "drain": "the node is drained",
    "terminate": "the node is terminated immediately",
    "stop": "the node is drained, stopped and started again",
    "ask": "the node is drained when its NodePool's budgets allow it",
    "nothing": "no action",
}
TERMINATING: Final = "TerminatingOnInterruption"


def due_event_texts(state: NodeClaimState, now: datetime) -> dict[str, EventText]:
    return {
        topic: text
        for topic, (version, text) in _event_texts(state, now).items()
        if state.published_event_versions.get(topic) != version
    }


def published_versions(state: NodeClaimState, now: datetime) -> dict[str, str]:
    """The versions after all texts are published, without those of dropped events."""
    known = {event.key for event in events_of(state.interruptions)}
    before = {
        topic: version for topic, version in state.published_event_versions.items() if topic.partition("|")[0] in known
    }
    return {**before, **{topic: version for topic, (version, _) in _event_texts(state, now).items()}}


def _event_texts(state: NodeClaimState, now: datetime) -> dict[str, tuple[str, EventText]]:
    found: dict[str, tuple[str, EventText]] = {}
    for event in events_of(state.interruptions):
        policy = resolve_event_policy(state.observed.rules, event.kind)
        if policy.action == "ignore" and policy.max_downtime is None:
            continue
        topic = f"{event.key}|status"
        if event.status == "announced" or state.published_event_versions.get(topic) == "announced":
            found[topic] = (event.status, _status_text(state, event, now))
        if event.decision is not None:
            found[f"{event.key}|answer"] = (event.decision.at.isoformat(), _decision_text(event))
        if event.key == state.interrupted:
            found[f"{event.key}|acts"] = (state.interrupted, _event_text(TERMINATING, describe_event(event)))
    return found


def _status_text(state: NodeClaimState, event: Event, now: datetime) -> EventText:
    if event.status != "announced":
        over = "AWS cancelled it" if event.status == "withdrawn" else "it has ended"
        return EventText(reason="InterruptionWithdrawn", message=f"{describe_event(event)}: {over}")
    moved = f", moved from {event.moved_from.isoformat(timespec='seconds')}" if event.moved_from else ""
    text = f" ({event.text[:200]})" if event.text else ""
    return _event_text(
        REASONS[event.kind], f"{describe_event(event)}{moved}: {_describe_next_step(state, event, now)}{text}"
    )


def _describe_next_step(state: NodeClaimState, event: Event, now: datetime) -> str:
    decision = decide_event(state, event, now)
    if decision.do != "wait":
        return _OUTCOMES[decision.do]
    until = retained_until(state, event)
    return f"the node is kept until {until.isoformat(timespec='seconds')}" if until else decision.what


def _decision_text(event: Event) -> EventText:
    decision = event.decision
    assert decision is not None
    verb = "approved" if decision.approved else "rejected"
    why = f": {decision.reason}" if decision.reason else ""
    reason = "InterruptionApproved" if decision.approved else "InterruptionRejected"
    return EventText(reason=reason, message=f"{describe_event(event)} is {verb} by {decision.by}{why}")


def _event_text(reason: str, details: str) -> EventText:
    return EventText(reason=reason, message=f"{_KARPENTER_MESSAGES[reason]}: {details}")


_WAITING: Final[frozenset[EventAction]] = frozenset({"wait", "ask", "stop"})
_OTHER_REASON: Final = "the node is terminated for another reason"
_PLANNED: Final = {
    "drain": "the node is to be drained",
    "terminate": "the node is to be terminated",
    "ask": "waits for its NodePool's budgets",
}


def event_records(state: NodeClaimState, before: tuple[EventRecord, ...], now: datetime) -> tuple[EventRecord, ...]:
    """Oldest first. `before`: the previous records, whose start times are kept."""
    known = {_record_key(one): one for one in before}
    found = [_event_record(state, event, now) for event in events_of(state.interruptions)]
    return tuple(_with_since(one, known.get(_record_key(one))) for one in found)


def _event_record(state: NodeClaimState, event: Event, now: datetime) -> EventRecord:
    policy = resolve_event_policy(state.observed.rules, event.kind)
    done, waits = _describe_done(state, event, now)
    decision = event.decision
    decided_by = f"{'approved' if decision.approved else 'rejected'} by {decision.by}" if decision else ""
    moved = f"moved from {event.moved_from.isoformat(timespec='seconds')}" if event.moved_from else ""
    return EventRecord(
        kind=event.kind,
        code=event.code,
        received_at=event.received_at,
        starts=event.starts,
        status=event.status,
        policy=state.observed.event_policies.get(event.kind, ""),
        action=policy.action,
        done="; ".join(part for part in (done, decided_by, moved) if part),
        waits=waits,
        since=now,
    )


def _describe_done(state: NodeClaimState, event: Event, now: datetime) -> tuple[str, bool]:
    terminating = state.phase in TERMINATING_PHASES
    if event.key == state.interrupted and terminating:
        forced = decide_event(state, event, now).do == "terminate"
        return "the node is terminated" if forced else "the node is drained", False
    if event.done:
        return "the instance was stopped and started, the node kept", False
    if event.status != "announced":
        return "AWS cancelled it" if event.status == "withdrawn" else "it has ended", False
    if terminating:
        return f"{_OTHER_REASON}: {state.disruption}", False
    decision = decide_event(state, event, now)
    if decision.do == "stop":
        step = state.stop.step if state.stop and state.stop.key == event.key else "drain"
        return f"the instance is stopped and started ({step})", True
    if decision.do == "nothing":
        ignored = resolve_event_policy(state.observed.rules, event.kind).action == "ignore"
        return "ignored" if ignored else decision.what or "no action", False
    return decision.what or _PLANNED.get(decision.do, decision.do), decision.do in _WAITING


def _record_key(one: EventRecord) -> tuple[str, datetime | None, datetime]:
    return (one.kind, one.starts, one.received_at)


def _with_since(one: EventRecord, before: EventRecord | None) -> EventRecord:
    """Keep an unchanged record, and that of a finished event of a node that terminates for another reason."""
    if before is None:
        return one
    settled = one.done.startswith(_OTHER_REASON) and not before.waits
    same = before.model_copy(update={"since": one.since}) == one
    return before if same or (settled and before.status == one.status) else one


MAX_REASON_LENGTH = 300


def problem_of(state: NodeClaimState, by: str, reason: str) -> str:
    """Why an approval or rejection is invalid, with the expected form; empty if it is valid."""
    if not by.strip():
        return f"by: {by!r}: invalid name, expected the requester, e.g. ann@example.com"
    if len(reason) > MAX_REASON_LENGTH:
        return f"reason: {reason[:60]!r} of {len(reason)} characters, expected at most {MAX_REASON_LENGTH}"
    if not approvable_events(state):
        name = state.identity.name
        events = f"`tenure events {name}` lists its AWS events"
        return f"NodeClaim {name} has no event that waits for approval, in phase {state.phase.value}; {events}"
    return ""


def new_decision(by: str, reason: str, now: datetime, *, approved: bool) -> ApprovalDecision:
    return ApprovalDecision(
        approved=approved, by=by.strip(), reason=" ".join(reason.split())[:MAX_REASON_LENGTH], at=now
    )


def describe_decision(state: NodeClaimState, decision: ApprovalDecision, now: datetime) -> OperatorRequestResult:
    events = ", ".join(describe_event(event) for event in approvable_events(state))
    name, next_step = state.identity.name, decide_interruption(state, now)
    if decision.approved:
        return OperatorRequestResult(message=f"NodeClaim {name} is terminated for {events}, approved by {decision.by}")
    if next_step.do == "wait" and next_step.until:
        until = next_step.until.isoformat(timespec="seconds")
        return OperatorRequestResult(
            message=f"NodeClaim {name} is kept until {until}, before AWS acts: {next_step.what}"
        )
    return OperatorRequestResult(message=f"NodeClaim {name} is kept despite {events}: rejected by {decision.by}")


_SHUTDOWN_KINDS: Final[tuple[EventKind, ...]] = ("instanceStopping", "instanceTerminating")


def maintenance_conditions(state: NodeClaimState) -> dict[str, str]:
    """The message of each condition that is True now."""
    found: dict[str, str] = {}
    for event in live_events(state):
        for condition in _conditions_of(state, event):
            found.setdefault(condition, describe_event(event))
    return found


def _conditions_of(state: NodeClaimState, event: Event) -> list[str]:
    found = []
    if event.kind == "scheduledChange":
        is_started = is_under_way(state, event)
        found.append(labels.MAINTENANCE_IN_PROGRESS if is_started else labels.MAINTENANCE_PLANNED)
    stops_now = state.stop is not None and state.stop.key == event.key and state.stop.step == "stop"
    if event.kind in _SHUTDOWN_KINDS or stops_now:
        found.append(labels.GRACEFUL_SHUTDOWN)
    return found


def condition_changes(state: NodeClaimState) -> tuple[ConditionPatch, ...]:
    """The patches from the published conditions to the current ones."""
    current, published = maintenance_conditions(state), state.node_conditions
    return tuple(
        ConditionPatch(
            type=one,
            status="True" if one in current else "",
            reason=labels.NODE_MAINTENANCE if one in current else "",
            message=current.get(one, ""),
        )
        for one in labels.NODE_LIFECYCLE_CONDITIONS
        if current.get(one) != published.get(one)
    )
