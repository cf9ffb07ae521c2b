"""The action for an AWS event of a node, and its time; `workflows/phases/interruption.py` performs it.

Karpenter's actions apply unless a LifecyclePolicy overrides them. A delayed action is due before AWS acts, whatever it
waits for, unless a policy leaves the node to AWS.
"""

from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.labels import SPOT
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.base import Value
from tenure.model.disruption.drain import PodDrainRule
from tenure.model.interruption.messages import EventKind
from tenure.model.interruption.records import Event, InstanceStopStart
from tenure.model.node_health import ongoing_since
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.drain.decision import has_surge
from tenure.policy.hooks.rules import hooks_of
from tenure.policy.interruption.due_times import TimingDecision, decide_timing, format_timestamp, last_drain_start
from tenure.policy.interruption.events import events_of
from tenure.policy.interruption.rules import (
    DEFAULT_MAX_DOWNTIME,
    DEFERRABLE_KINDS,
    RECLAIM_KINDS,
    EventTiming,
    resolve_event_policy,
    resolve_timing,
    workloads_of,
)

EventAction = Literal["nothing", "wait", "ask", "drain", "terminate", "stop"]
ACTING: Final[tuple[EventAction, ...]] = ("drain", "terminate", "stop")
_RANK: Final[dict[EventAction, int]] = {"terminate": 5, "drain": 4, "ask": 3, "stop": 2, "wait": 1, "nothing": 0}
START_TOLERANCE: Final = timedelta(minutes=10)
"""How long before the announced time AWS may act. A node that becomes NotReady then is lost to the event."""


class InterruptionDecision(Value):
    do: EventAction = "nothing"
    until: datetime | None = None
    key: str = ""
    kind: EventKind | None = None
    reason: str = ""
    why: str = ""
    what: str = ""


def decide_interruption(state: NodeClaimState, now: datetime) -> InterruptionDecision:
    """The decision for the most urgent event: the strongest action, then events that cannot be deferred, then the
    earliest time."""
    found = [decide_event(state, event, now) for event in live_events(state)]
    if not found:
        return InterruptionDecision()
    most = max(map(_urgency, found))
    first = [one for one in found if _urgency(one) == most]
    return min(first, key=lambda one: (one.until is None, one.until))


def next_decision_at(state: NodeClaimState, now: datetime) -> datetime | None:
    """When the decision for an event changes without a signal; None if no time changes one. The most urgent event may
    hide an earlier time of another one."""
    times = (_decision_ends_at(event, decide_event(state, event, now)) for event in live_events(state))
    return min((at for at in times if at is not None and at > now), default=None)


def _decision_ends_at(event: Event, decision: InterruptionDecision) -> datetime | None:
    """An instance can be stopped and started until AWS acts."""
    return event.starts if decision.do == "stop" else decision.until


def _urgency(one: InterruptionDecision) -> tuple[int, bool]:
    return _RANK[one.do], one.do in ACTING and one.kind not in DEFERRABLE_KINDS


def live_events(state: NodeClaimState) -> tuple[Event, ...]:
    """AWS events of this node that are neither withdrawn nor handled.

    An event with a stop in progress stays live: EC2 does not list the status of a stopped instance, so the event would
    seem to be over.
    """
    if not state.interruptions:
        return ()
    found = [event for event in events_of(state.interruptions) if not event.done]
    return tuple(event for event in found if event.status == "announced" or _stop_for(state, event))


def _stop_for(state: NodeClaimState, event: Event) -> InstanceStopStart | None:
    """The stop and start of the instance for this event, from the stop until the instance is running again."""
    stop = state.stop
    return stop if stop and stop.key == event.key and stop.step in ("stop", "start", "back", "failed") else None


def requires_action(state: NodeClaimState, now: datetime) -> bool:
    return decide_interruption(state, now).do in ACTING


def drains_immediately(rules: LifecycleRules | None, kind: EventKind) -> bool:
    """Whether the first evictions of an interrupted node may run before its workflow starts the drain.

    False if a hook must run first, or a replacement pod must be Ready first.
    """
    policy = resolve_event_policy(rules, kind)
    if kind not in RECLAIM_KINDS or policy.action != "drain" or policy.voluntary:
        return False
    return not hooks_of(rules, "beforeDrain") and not has_surge(rules.drain if rules else None)


def approvable_events(state: NodeClaimState) -> tuple[Event, ...]:
    """Events that an operator may approve or reject, for the whole node or for some of its pods."""
    return tuple(event for event in live_events(state) if _is_approvable(state, event))


def _is_approvable(state: NodeClaimState, event: Event) -> bool:
    rules, action = state.observed.rules, resolve_event_policy(state.observed.rules, event.kind).action
    if action == "waitForApproval" or event.kind not in DEFERRABLE_KINDS or action in ("notify", "ignore", "terminate"):
        return action == "waitForApproval"
    return any(one.action == "waitForApproval" for one in workloads_of(rules))


def decide_event(state: NodeClaimState, event: Event, now: datetime) -> InterruptionDecision:
    if stop := _stop_for(state, event):
        return _new_decision(event, "drain" if stop.step == "failed" else "stop")
    policy = resolve_event_policy(state.observed.rules, event.kind)
    if policy.action == "ignore":
        return _decide_ignored(state, event, now)
    if policy.action != "notify" and (unreadable := _decide_unreadable(state, event, policy.times, now)):
        return _new_decision(event, "wait" if unreadable.do == "wait" else "drain", unreadable.until, unreadable.why)
    timely = decide_timing(policy.action, policy.times, event, state.identity.name, now)
    if timely.do != "go":
        do: EventAction = "wait" if timely.do == "wait" else "nothing"
        return _new_decision(event, do, timely.until, timely.why)
    if policy.action == "stopStart":
        return _new_decision(event, "stop" if _can_stop_start(state, event, now) else "drain")
    if policy.action == "terminate":
        return _new_decision(event, "terminate")
    if policy.voluntary and state.initialized and state.identity.pool:
        last = event.starts if policy.action == "deferUntilEventStart" else last_drain_start(event, policy.times)
        if last is None or now < last:
            return _new_decision(event, "ask", last)
    return _new_decision(event, "drain")


def _decide_unreadable(state: NodeClaimState, event: Event, times: EventTiming, now: datetime) -> TimingDecision | None:
    """If a rule is invalid, an event that can be deferred waits as long as possible, since the rule may require it.
    None if all rules are valid."""
    why = state.observed.events_unread
    if not why or event.kind not in DEFERRABLE_KINDS:
        return None
    last = last_drain_start(event, times)
    if last is not None and now >= last:
        return TimingDecision(do="go")
    return TimingDecision(
        do="wait", until=last, why=f"{why}; it is drained at {format_timestamp(last)} at the latest" if last else why
    )


def _can_stop_start(state: NodeClaimState, event: Event, now: datetime) -> bool:
    spot = state.launched is not None and state.launched.capacity_type == SPOT
    return not spot and (event.starts is None or now < event.starts)


def _new_decision(event: Event, do: EventAction, until: datetime | None = None, why: str = "") -> InterruptionDecision:
    message = f"{describe_event(event)}: {why}" if why else describe_event(event)
    return InterruptionDecision(
        do=do, until=until, key=event.key, kind=event.kind, reason=event.reason, why=message, what=why
    )


# --- stopped instances -----------------------------------------------------------------------------------


def retained_until(state: NodeClaimState, event: Event) -> datetime | None:
    """The time until which a node with a stopped instance stays; None if the instance runs or the node is not kept.

    A stopped spot instance does not restart."""
    max_downtime = resolve_event_policy(state.observed.rules, event.kind).max_downtime
    since = _stopped_since(state, event) if max_downtime else None
    spot = state.launched is not None and state.launched.capacity_type == SPOT
    return since + max_downtime if since and max_downtime and not spot else None


def is_under_way(state: NodeClaimState, event: Event) -> bool:
    """Whether the instance is stopped for the event, by AWS or by Tenure."""
    stop = _stop_for(state, event)
    return stop.step != "failed" if stop else _stopped_since(state, event) is not None


def maintenance_until(state: NodeClaimState) -> datetime | None:
    return max((until for event in live_events(state) if (until := retained_until(state, event))), default=None)


def _stopped_since(state: NodeClaimState, event: Event) -> datetime | None:
    if event.kind == "instanceStopping":
        return event.received_at
    since = ongoing_since(state.not_ready_intervals)
    return since if since and event.starts and since >= event.starts - START_TOLERANCE else None


def _decide_ignored(state: NodeClaimState, event: Event, now: datetime) -> InterruptionDecision:
    """The event is left to AWS. A node with a stopped instance is drained only if it is not back in time."""
    until = retained_until(state, event)
    if until is None:
        return _new_decision(event, "nothing")
    if now < until:
        return _new_decision(
            event, "wait", until, f"its instance is stopped, and the node is kept until {format_timestamp(until)}"
        )
    return _new_decision(event, "drain")


# --- drains for events -----------------------------------------------------------------------------------


def draining_event(state: NodeClaimState) -> Event | None:
    return next((one for one in live_events(state) if one.key == state.interrupted), None)


def superseding_interruption(state: NodeClaimState, now: datetime) -> InterruptionDecision | None:
    """The interruption that makes the drain of a node more urgent; None if there is none.

    Also None if the NodeClaim is already being deleted and the interruption would not evict pods earlier.
    """
    decision, known = decide_interruption(state, now), draining_event(state)
    event = next((one for one in live_events(state) if one.key == decision.key), None)
    if event is None or decision.do not in ("drain", "terminate"):
        return None
    if known and _urgency(decision) <= _urgency(decide_event(state, known, now)):
        return None
    cancellable = state.drain is not None and state.drain.defers_deletion
    blocks_pods = known is not None and any(one.blocked for one in pods_blocked_by_event(state, known, now))
    forces = decision.do == "terminate" or (
        event_overrides_do_not_disrupt(state, event) and not overrides_do_not_disrupt(state)
    )
    return decision if cancellable or blocks_pods or forces else None


def pods_blocked_by_event(state: NodeClaimState, event: Event, now: datetime) -> tuple[PodDrainRule, ...]:
    """Rules for pods that wait while others are evicted, in the policy's order."""
    if (
        event.kind not in DEFERRABLE_KINDS
        or resolve_event_policy(state.observed.rules, event.kind).action == "terminate"
    ):
        return ()
    found = []
    for number, one in enumerate(workloads_of(state.observed.rules)):
        times = resolve_timing(one)
        timely = _decide_unreadable(state, event, times, now) or decide_timing(
            one.action, times, event, state.identity.name, now
        )
        why = f"{describe_event(event)}: interruption.workloads[{number}] {timely.why or 'is left to AWS'}"
        blocked = timely.do != "go"
        found.append(
            PodDrainRule(match_labels=one.match_labels, blocked=blocked, until=timely.until, why=why if blocked else "")
        )
    return tuple(found) if any(one.blocked for one in found) else ()


def overrides_do_not_disrupt(state: NodeClaimState) -> bool:
    event = draining_event(state)
    return event is not None and event_overrides_do_not_disrupt(state, event)


def event_overrides_do_not_disrupt(state: NodeClaimState, event: Event) -> bool:
    return resolve_event_policy(state.observed.rules, event.kind).do_not_disrupt == "override"


def stop_start_deadline(state: NodeClaimState, key: str) -> timedelta:
    found = (
        resolve_event_policy(state.observed.rules, event.kind).max_downtime
        for event in live_events(state)
        if event.key == key
    )
    return next(found, None) or DEFAULT_MAX_DOWNTIME


# --- text ------------------------------------------------------------------------------------------------


def describe_event(event: Event) -> str:
    code = f" {event.code}" if event.code else ""
    return f"{event.kind}{code}" + (f" at {format_timestamp(event.starts)}" if event.starts else "")
