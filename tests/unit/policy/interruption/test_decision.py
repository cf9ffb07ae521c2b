"""Decisions on interruption events of a node: Karpenter's defaults and rules of LifecyclePolicies."""

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from tenure.model.interruption.messages import EventKind
from tenure.model.interruption.records import ApprovalDecision, Event
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.interruption.decision import (
    decide_interruption,
    next_decision_at,
    pods_blocked_by_event,
)
from tenure.policy.interruption.events import events_of, record_messages
from tests.unit.policy import interruption_builders as ev
from tests.unit.policy.builders import NOW, after
from tests.unit.policy.interruption_builders import (
    APPROVAL,
    DEFER,
    DEFERRED,
    DRAIN_RECOMMENDED,
    IN_TWO_DAYS,
    KARPENTER_DEFAULTS,
    NO,
    SUNDAYS,
    TWO_DAYS,
    YES,
    approval,
    interruption_message,
    node_with_events,
)

SUNDAY = datetime(2026, 6, 7, 0, tzinfo=UTC)
"""The next Sunday at 02:00 in Berlin."""
WINDOWED: dict[str, Any] = {"action": "window", "windows": [SUNDAYS], "lead": "1h"}
VOLUNTARY: dict[str, Any] = {"voluntary": True, "lead": "1h"}
WINDOW = {"scheduledChange": WINDOWED}


def node_with_event(kind: EventKind, **fields: Any) -> NodeClaimState:
    return node_with_events(interruption_message(kind), event_rules={kind: fields})


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


HIDDEN: dict[str, tuple[NodeClaimState, str, datetime]] = {
    # node with two events -> action for the most urgent one, and the next time at which an action changes
    "waits for a permit": (
        node_with_events(
            interruption_message("rebalanceRecommendation"),
            IN_TWO_DAYS,
            event_rules={"rebalanceRecommendation": {"action": "drain", "voluntary": True}, **DEFER},
        ),
        "ask",
        after(hours=47),
    ),
    "can be stopped and started": (
        node_with_events(
            interruption_message(starts=after(hours=3)), event_rules={"scheduledChange": {"action": "stopStart"}}
        ),
        "stop",
        after(hours=3),
    ),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_next_decision_is_the_earliest_of_all_events(case: str) -> None:
    state, action, at = HIDDEN[case]
    assert decide_interruption(state, NOW).do == action
    assert next_decision_at(state, NOW) == at
    assert decide_interruption(state, at).do == "drain" and next_decision_at(state, at) is None
