"""Decisions on interruption events of a node: Karpenter's defaults and rules of LifecyclePolicies."""

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from tenure.model.disruption.drain import DrainState, PodDrainRule
from tenure.model.interruption.messages import EventKind, InterruptionMessage
from tenure.model.interruption.records import ApprovalDecision, Event, InstanceStopStart
from tenure.model.node_health import NotReadyInterval
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.interruption.decision import (
    approvable_events,
    decide_interruption,
    draining_event,
    maintenance_until,
    overrides_do_not_disrupt,
    pods_blocked_by_event,
    superseding_interruption,
)
from tenure.policy.interruption.events import event_key, events_of, record_messages
from tests.unit.policy import interruption_builders as ev
from tests.unit.policy.builders import NOW, after, before
from tests.unit.policy.interruption_builders import NO, SUNDAYS, YES, interruption_message, node_with_events

TWO_DAYS = after(hours=48)
IN_TWO_DAYS = interruption_message(starts=TWO_DAYS)
SUNDAY = datetime(2026, 6, 7, 0, tzinfo=UTC)
"""The next Sunday at 02:00 in Berlin."""
DEFERRED: dict[str, Any] = {"action": "deferUntilEventStart", "lead": "1h"}
WINDOWED: dict[str, Any] = {"action": "window", "windows": [SUNDAYS], "lead": "1h"}
APPROVAL: dict[str, Any] = {"action": "waitForApproval", "lead": "1h"}
VOLUNTARY: dict[str, Any] = {"voluntary": True, "lead": "1h"}
DEFER, WINDOW = {"scheduledChange": DEFERRED}, {"scheduledChange": WINDOWED}


def approval(**fields: Any) -> dict[str, Any]:
    return {"scheduledChange": {**APPROVAL, **fields}}


def node_with_event(kind: EventKind, **fields: Any) -> NodeClaimState:
    return node_with_events(interruption_message(kind), event_rules={kind: fields})


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
MAINTENANCE: dict[str, tuple[datetime | None, dict[str, Any], ApprovalDecision | None, str, datetime | None]] = {
    # start of the event, rule, approval decision -> action and end of the wait
    "deferred": (TWO_DAYS, DEFERRED, None, "wait", after(hours=47)),
    "deferred with the default lead": (
        TWO_DAYS,
        {"action": "deferUntilEventStart"},
        None,
        "wait",
        TWO_DAYS - timedelta(minutes=10),
    ),
    "deferred, lead reached": (after(hours=1), DEFERRED, None, "drain", None),
    "deferred, start unknown": (None, DEFERRED, None, "drain", None),
    "window before the event": (ev.in_days(6), WINDOWED, None, "wait", SUNDAY),
    "window opens too late": (TWO_DAYS, WINDOWED, None, "wait", after(hours=47)),
    "window opens within the lead": (
        SUNDAY + timedelta(minutes=30),
        WINDOWED,
        None,
        "wait",
        SUNDAY - timedelta(minutes=30),
    ),
    "window, start unknown": (None, WINDOWED, None, "wait", SUNDAY),
    "no window in time, lead reached": (after(minutes=30), WINDOWED, None, "drain", None),
    "no window in time, fallback notify": (
        after(minutes=30),
        {**WINDOWED, "fallback": "notify"},
        None,
        "nothing",
        None,
    ),
    "approval, start unknown": (None, APPROVAL, None, "wait", None),
    "approval until the event": (TWO_DAYS, APPROVAL, None, "wait", after(hours=47)),
    "approval with a deadline": (TWO_DAYS, {**APPROVAL, "deadline": "2h"}, None, "wait", after(minutes=115)),
    "approval deadline after the event": (
        after(hours=2),
        {**APPROVAL, "deadline": "24h"},
        None,
        "wait",
        after(hours=1),
    ),
    "approved": (TWO_DAYS, APPROVAL, YES, "drain", None),
    "not approved in time": (TWO_DAYS, {**APPROVAL, "deadline": "5m"}, None, "drain", None),
    "not approved in time, fallback notify": (
        TWO_DAYS,
        {**APPROVAL, "deadline": "5m", "fallback": "notify"},
        None,
        "nothing",
        None,
    ),
    "rejected, time of the event counts": (TWO_DAYS, {**APPROVAL, "deadline": "5m"}, NO, "wait", after(hours=47)),
    "rejected, lead reached": (after(hours=1), APPROVAL, NO, "drain", None),
    "rejected, fallback notify": (TWO_DAYS, {**APPROVAL, "fallback": "notify"}, NO, "nothing", None),
    "rejected, start unknown": (None, APPROVAL, NO, "nothing", None),
    "voluntary until the event": (TWO_DAYS, VOLUNTARY, None, "ask", after(hours=47)),
    "voluntary, lead reached": (after(hours=1), VOLUNTARY, None, "drain", None),
    "deferred, then voluntary": (after(hours=1), {**DEFERRED, "voluntary": True}, None, "ask", after(hours=1)),
    "voluntary, stopStart by another policy": (
        TWO_DAYS,
        {**VOLUNTARY, "action": "stopStart"},
        None,
        "ask",
        after(hours=47),
    ),
    "stopStart": (TWO_DAYS, {"action": "stopStart"}, None, "stop", None),
    "stopStart in a window": (
        ev.in_days(6),
        {"action": "stopStart", "windows": [SUNDAYS]},
        None,
        "wait",
        SUNDAY,
    ),
}
RECOMMENDATION = interruption_message("rebalanceRecommendation")
DRAIN_RECOMMENDED = {"rebalanceRecommendation": {"action": "drain"}}
CASES: dict[str, tuple[NodeClaimState, str, datetime | None]] = {
    "no event": (node_with_events(), "nothing", None),
    "withdrawn maintenance": (node_with_events(interruption_message(status="withdrawn")), "nothing", None),
    "status check recovered": (
        node_with_events(interruption_message("instanceStatus", status="over", source="status")),
        "nothing",
        None,
    ),
    "status check with action drain": (node_with_event("instanceStatus", action="drain"), "drain", None),
    "status check with doNotDisrupt honour": (node_with_event("systemStatus", doNotDisrupt="honour"), "drain", None),
    "status check with action notify": (node_with_event("instanceStatus", action="notify"), "nothing", None),
    "voluntary status check": (node_with_event("instanceStatus", voluntary=True), "ask", None),
    "spot interruption ignored": (node_with_event("spotInterruption", action="ignore"), "nothing", None),
    "spot interruption while other kinds only notify": (
        node_with_events(
            interruption_message("spotInterruption"),
            event_rules={kind: {"action": "notify"} for kind in ("scheduledChange", "instanceStatus", "systemStatus")},
        ),
        "drain",
        None,
    ),
    "spot interruption with pods that wait for approval": (
        node_with_events(interruption_message("spotInterruption"), event_rules={"workloads": [ev.STATEFUL]}),
        "drain",
        None,
    ),
    "several events, strongest action": (
        node_with_events(IN_TWO_DAYS, interruption_message("systemStatus"), event_rules=DEFER),
        "terminate",
        None,
    ),
    "several events, urgent drain precedes one with blocked pods": (
        node_with_events(
            RECOMMENDATION,
            interruption_message("spotInterruption"),
            event_rules={**DRAIN_RECOMMENDED, "workloads": [ev.STATEFUL]},
        ),
        "drain",
        None,
    ),
    "several deferred events, the earliest": (
        node_with_events(IN_TWO_DAYS, interruption_message(id="sooner", starts=after(hours=5)), event_rules=DEFER),
        "wait",
        after(hours=4),
    ),
    "voluntary recommendation": (
        node_with_event("rebalanceRecommendation", action="drain", voluntary=True),
        "ask",
        None,
    ),
    "voluntary recommendation for an uninitialized node": (
        node_with_events(
            RECOMMENDATION,
            event_rules={"rebalanceRecommendation": {"action": "drain", "voluntary": True}},
            initialized=False,
        ),
        "drain",
        None,
    ),
} | {
    case: (
        node_with_events(interruption_message(starts=starts), event_rules={"scheduledChange": rule}, decision=decision),
        do,
        until,
    )
    for case, (starts, rule, decision, do, until) in MAINTENANCE.items()
}


@pytest.mark.parametrize("kind", get_args(EventKind))
def test_default_actions_are_those_of_karpenter(kind: EventKind) -> None:
    assert decide_interruption(node_with_events(interruption_message(kind)), NOW).do == KARPENTER_DEFAULTS[kind]


@pytest.mark.parametrize("case", CASES)
def test_decision_and_end_of_its_wait(case: str) -> None:
    state, do, until = CASES[case]
    decision = decide_interruption(state, NOW)
    assert (decision.do, decision.until) == (do, until)


def test_wait_ends_exactly_at_its_time() -> None:
    for case, (state, do, until) in CASES.items():
        if do in ("wait", "ask") and until is not None:
            assert decide_interruption(state, until).do in ("drain", "stop"), case
            assert decide_interruption(state, until - timedelta(seconds=1)).do == do, case


@pytest.mark.parametrize("person_decision", [None, NO])
def test_rescheduled_event_restarts_the_approval_deadline(person_decision: ApprovalDecision | None) -> None:
    """Otherwise an unapproved or rejected event would drain the node once AWS postpones it by two weeks."""
    later = interruption_message(at=NOW, starts=ev.in_days(14))
    state = node_with_events(IN_TWO_DAYS, event_rules=approval(deadline="24h"), decision=person_decision)
    moved = state.model_copy(update={"interruptions": record_messages(state.interruptions, (later,), after(hours=30))})
    decision = decide_interruption(moved, after(hours=30))
    assert (decision.do, decision.until) == ("wait", after(hours=54))
    assert decide_interruption(moved, after(hours=54)).do == "drain"
    (blocked,) = pods_blocked_by_event(with_workload_approval(moved), drained_event(moved), after(hours=30))
    assert blocked.blocked and blocked.until == after(hours=54)


def with_workload_approval(state: NodeClaimState) -> NodeClaimState:
    """The same state with pods that wait for approval."""
    rules = ev.rules(workloads=[{**ev.STATEFUL, "deadline": "24h"}])
    return state.model_copy(update={"observed": state.observed.model_copy(update={"rules": rules})})


def drained_event(state: NodeClaimState) -> Event:
    (event,) = events_of(state.interruptions)
    return event


@pytest.mark.parametrize(
    ("event_rules", "starts", "expected"),
    [
        (DEFER, TWO_DAYS, "deferred until 2026-06-03T11:00:00+00:00"),
        (WINDOW, ev.in_days(6), "waits for its window, which opens at 2026-06-07T00:00:00+00:00"),
        (WINDOW, TWO_DAYS, "no window opens before 2026-06-03T11:00:00+00:00, it is drained then"),
        (approval(), TWO_DAYS, "waits for approval until 2026-06-03T11:00:00+00:00, it is drained then; run tenure"),
        (approval(), None, "waits for approval: run tenure approve a"),
    ],
)
def test_explanation_of_a_wait(event_rules: dict[str, Any], starts: datetime | None, expected: str) -> None:
    why = decide_interruption(node_with_events(interruption_message(starts=starts), event_rules=event_rules), NOW).why
    assert why.startswith("scheduledChange instance-retirement") and expected in why


def test_explanation_of_a_rejection_names_person_and_reason() -> None:
    why = decide_interruption(node_with_events(IN_TWO_DAYS, event_rules=approval(), decision=NO), NOW).why
    assert "rejected by bob: quarter's end; AWS acts soon after 2026-06-03T11:00:00+00:00, it is drained then" in why


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        (
            datetime(2026, 3, 23, tzinfo=UTC),
            datetime(2026, 3, 29, 1, tzinfo=UTC),
        ),  # 02:00 does not exist: 03:00 summer time
        (datetime(2026, 3, 30, tzinfo=UTC), datetime(2026, 4, 5, 0, tzinfo=UTC)),
        (datetime(2026, 10, 19, tzinfo=UTC), datetime(2026, 10, 25, 0, tzinfo=UTC)),  # 02:00 occurs twice: the first
        (datetime(2026, 10, 26, tzinfo=UTC), datetime(2026, 11, 1, 1, tzinfo=UTC)),
    ],
)
def test_window_follows_summer_time(now: datetime, opens: datetime) -> None:
    state = node_with_events(interruption_message(starts=now + timedelta(days=8)), event_rules=WINDOW)
    decision = decide_interruption(state, now)
    assert (decision.do, decision.until) == ("wait", opens)
    assert decide_interruption(state, opens).do == "drain"
    assert decide_interruption(state, opens + timedelta(hours=1, minutes=59)).do == "drain"


# --- instances that return ---

STOPPED = interruption_message("instanceStopping")
IGNORED_STOP = {"instanceStopping": {"action": "ignore", "away": "20m"}}
UNTIL = before(minutes=5) + timedelta(minutes=20)


@pytest.mark.parametrize(
    ("state", "do", "until"),
    [
        (node_with_events(STOPPED, event_rules={"instanceStopping": {"action": "ignore"}}), "nothing", None),
        (node_with_events(STOPPED, event_rules=IGNORED_STOP), "wait", UNTIL),
        (node_with_events(STOPPED, event_rules=IGNORED_STOP, observed={"node_ready": False}), "wait", UNTIL),
        (node_with_events(STOPPED.model_copy(update={"status": "over"}), event_rules=IGNORED_STOP), "nothing", None),
        (node_with_events(STOPPED, event_rules=IGNORED_STOP, launched=ev.launched("spot")), "nothing", None),
    ],
)
def test_ignored_stop_waits_for_the_instance_during_away(
    state: NodeClaimState, do: str, until: datetime | None
) -> None:
    decision = decide_interruption(state, NOW)
    assert (decision.do, decision.until, maintenance_until(state)) == (do, until, until)


def test_stopped_instance_that_does_not_return_is_drained() -> None:
    assert decide_interruption(node_with_events(STOPPED, event_rules=IGNORED_STOP), UNTIL).do == "drain"


def test_ignored_maintenance_keeps_the_notready_node_during_away() -> None:
    event_rules = {"scheduledChange": {"action": "ignore", "away": "20m"}}
    not_ready_intervals = (NotReadyInterval(since=before(minutes=1)),)
    not_ready = node_with_events(
        interruption_message(starts=before(minutes=2)),
        event_rules=event_rules,
        not_ready_intervals=not_ready_intervals,
        observed={"node_ready": False},
    )
    assert (decide_interruption(not_ready, NOW).do, maintenance_until(not_ready)) == ("wait", after(minutes=19))
    early = node_with_events(
        IN_TWO_DAYS, event_rules=event_rules, not_ready_intervals=not_ready_intervals, observed={"node_ready": False}
    )
    assert (decide_interruption(early, NOW).do, maintenance_until(early)) == ("nothing", None)


@pytest.mark.parametrize("step", ["stop", "start", "back"])
@pytest.mark.parametrize("status", ["announced", "over", "withdrawn"])
def test_stop_start_in_progress_continues_despite_other_messages(step: str, status: str) -> None:
    state = stopping(step, status, event_rules={"scheduledChange": {"action": "notify"}})
    assert decide_interruption(state, NOW).do == "stop"
    assert decide_interruption(stopping("failed", status), NOW).do == "drain"
    assert decide_interruption(stopping("done", "over"), NOW).do == "nothing"


def stopping(step: str, status: str, **fields: Any) -> NodeClaimState:
    one = interruption_message(starts=after(hours=48), status=status)
    stop = InstanceStopStart.model_validate({"key": event_key(one), "step": step, "since": before(minutes=1)})
    return node_with_events(one, stop=stop, **fields)


# --- events during a drain ---

SPOT: EventKind = "spotInterruption"
RECOMMENDED: dict[str, Any] = {**DRAIN_RECOMMENDED, "workloads": [ev.STATEFUL]}
OVERRIDE: dict[str, Any] = {"spotInterruption": {"doNotDisrupt": "override"}}


@pytest.mark.parametrize(
    ("later_kind", "event_rules", "cancellable", "do"),
    [
        ("spotInterruption", RECOMMENDED, True, "drain"),
        ("instanceTerminating", RECOMMENDED, True, "drain"),
        ("instanceStatus", RECOMMENDED, True, "terminate"),
        ("instanceStatus", RECOMMENDED, False, "terminate"),
        ("spotInterruption", RECOMMENDED, False, "drain"),
        ("spotInterruption", DRAIN_RECOMMENDED, False, None),
        ("spotInterruption", DRAIN_RECOMMENDED | OVERRIDE, False, "drain"),
        ("scheduledChange", RECOMMENDED, True, None),
        ("spotInterruption", RECOMMENDED | {"spotInterruption": {"action": "ignore"}}, True, None),
        ("instanceStatus", RECOMMENDED | {"instanceStatus": {"action": "notify"}}, True, None),
    ],
)
def test_event_that_supersedes_a_recommended_drain(
    later_kind: EventKind, event_rules: dict[str, Any], cancellable: bool, do: str | None
) -> None:
    drain = DrainState(defers_deletion=cancellable)
    state = node_with_events(
        interruption_message("rebalanceRecommendation"),
        interruption_message(later_kind),
        event_rules=event_rules,
        interrupted="rebalanceRecommendation",
        drain=drain,
    )
    found = superseding_interruption(state, NOW)
    assert (found.do if found else None) == do
    if found:
        assert superseding_interruption(state.model_copy(update={"interrupted": found.key}), NOW) is None


@pytest.mark.parametrize(
    ("kinds", "cancellable", "supersedes"), [((SPOT,), True, True), ((SPOT,), False, False), ((), True, False)]
)
def test_interruption_supersedes_a_voluntary_drain(
    kinds: tuple[EventKind, ...], cancellable: bool, supersedes: bool
) -> None:
    state = node_with_events(*map(interruption_message, kinds), drain=DrainState(defers_deletion=cancellable))
    assert (superseding_interruption(state, NOW) is not None) is supersedes


# --- pods that are drained later ---

DEFERRED_CLASSES = [
    {"matchLabels": {"example.com/state": "kept"}, "action": "deferUntilEventStart", "lead": "72h"},
    {"matchLabels": {"example.com/tier": "gold"}, "action": "deferUntilEventStart"},
]


def blocked_pods(state: NodeClaimState, now: datetime = NOW) -> tuple[PodDrainRule, ...]:
    event = draining_event(state)
    assert event is not None
    return pods_blocked_by_event(state, event, now)


def test_only_pods_that_wait_for_approval_are_blocked() -> None:
    state = ev.drained_for(IN_TWO_DAYS, event_rules={"workloads": [ev.STATEFUL]})
    assert decide_interruption(state, NOW).do == "drain"
    (blocked,) = blocked_pods(state)
    assert blocked.match_labels == ev.STATEFUL["matchLabels"]
    assert blocked.until == TWO_DAYS - timedelta(minutes=10)
    assert "interruption.workloads[0] waits for approval until" in blocked.why
    assert blocked_pods(state, blocked.until) == ()


@pytest.mark.parametrize(
    ("one", "workloads", "decision", "blocked"),
    [
        pytest.param(IN_TWO_DAYS, [ev.STATEFUL], YES, [], id="approved"),
        pytest.param(
            IN_TWO_DAYS, DEFERRED_CLASSES, None, [False, True], id="workload class with reached lead precedes"
        ),
        pytest.param(interruption_message("spotInterruption"), [ev.STATEFUL], None, [], id="urgent: spot"),
        pytest.param(interruption_message("instanceTerminating"), [ev.STATEFUL], None, [], id="urgent: termination"),
        pytest.param(interruption_message("systemStatus"), [ev.STATEFUL], None, [], id="urgent: status check"),
    ],
)
def test_workload_classes_block_in_policy_order(
    one: InterruptionMessage, workloads: list[dict[str, Any]], decision: ApprovalDecision | None, blocked: list[bool]
) -> None:
    state = ev.drained_for(one, event_rules={"workloads": workloads}, decision=decision)
    assert [one.blocked for one in blocked_pods(state)] == blocked


def test_withdrawn_event_is_not_draining() -> None:
    assert draining_event(ev.drained_for(interruption_message(status="withdrawn"))) is None


def test_do_not_disrupt_is_overridden_per_event_kind() -> None:
    event_rules = {"scheduledChange": {"doNotDisrupt": "override"}}
    assert overrides_do_not_disrupt(ev.drained_for(IN_TWO_DAYS, event_rules=event_rules))
    assert not overrides_do_not_disrupt(ev.drained_for(IN_TWO_DAYS))
    assert not overrides_do_not_disrupt(
        ev.drained_for(interruption_message("spotInterruption"), event_rules=event_rules)
    )


@pytest.mark.parametrize(
    ("event_rules", "expected"),
    [
        ({}, 0),
        (DEFER, 0),
        (approval(), 1),
        ({"workloads": [ev.STATEFUL]}, 1),
        ({"workloads": [ev.STATEFUL], "scheduledChange": {"action": "notify"}}, 0),
    ],
)
def test_event_is_approvable_only_with_a_matching_rule(event_rules: dict[str, Any], expected: int) -> None:
    assert len(approvable_events(node_with_events(IN_TWO_DAYS, event_rules=event_rules))) == expected


# --- unreadable rules ---

WHY = "LifecyclePolicy p is invalid, so maintenance waits until it can: spec.interruption.scheduledChange: no"
UNREAD = {"events_unread": WHY}


@pytest.mark.parametrize("kind", get_args(EventKind))
def test_only_deferrable_events_wait_for_unreadable_rules(kind: EventKind) -> None:
    decision = decide_interruption(node_with_events(interruption_message(kind), observed=UNREAD), NOW)
    if kind not in ("scheduledChange", "instanceStatus", "systemStatus"):
        assert decision.do == KARPENTER_DEFAULTS[kind], (
            "urgent kinds do not wait, and a recommendation has no action by default"
        )
    else:
        assert (decision.do, decision.until, decision.what) == ("wait", None, WHY)


@pytest.mark.parametrize(
    ("action", "do"), [("drain", "wait"), ("terminate", "wait"), ("stopStart", "wait"), ("notify", "nothing")]
)
def test_other_policy_does_not_end_the_wait_for_unreadable_rules(action: str, do: str) -> None:
    state = node_with_events(IN_TWO_DAYS, event_rules={"scheduledChange": {"action": action}}, observed=UNREAD)
    assert decide_interruption(state, NOW).do == do


def test_wait_for_unreadable_rules_ends_in_time_for_the_event() -> None:
    state = node_with_events(IN_TWO_DAYS, observed=UNREAD)
    decision = decide_interruption(state, NOW)
    latest = after(hours=48) - timedelta(minutes=10)
    assert (decision.do, decision.until) == ("wait", latest)
    assert decision.what == f"{WHY}; it is drained at {latest.isoformat()} at the latest"
    assert decide_interruption(state, latest).do == "drain"


def test_ignore_and_notify_rules_apply_despite_unreadable_rules() -> None:
    for kind, action in (("spotInterruption", "ignore"), ("scheduledChange", "ignore"), ("systemStatus", "notify")):
        state = node_with_events(interruption_message(kind), event_rules={kind: {"action": action}}, observed=UNREAD)  # type: ignore[arg-type]
        assert decide_interruption(state, NOW).do == "nothing", kind


@pytest.mark.parametrize(("step", "do"), [("drain", "wait"), ("stop", "stop"), ("back", "stop"), ("failed", "drain")])
def test_stop_start_continues_despite_unreadable_rules(step: Any, do: str) -> None:
    stop = InstanceStopStart(key=event_key(IN_TWO_DAYS), step=step, since=NOW)
    assert decide_interruption(node_with_events(IN_TWO_DAYS, observed=UNREAD, stop=stop), NOW).do == do


def test_blocked_pods_stay_blocked_while_rules_are_unreadable() -> None:
    early = DEFERRED_CLASSES[0]
    state = ev.drained_for(IN_TWO_DAYS, event_rules={"workloads": [early]}, observed=UNREAD)
    assert blocked_pods(state) == (), "its lead is reached"
    late = ev.drained_for(
        IN_TWO_DAYS, event_rules={"workloads": [{**early, "lead": "1h"}]}, decision=YES, observed=UNREAD
    )
    (blocked,) = blocked_pods(late)
    assert blocked.blocked and WHY in blocked.why
