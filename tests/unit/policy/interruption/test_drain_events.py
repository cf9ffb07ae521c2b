"""Events during a drain: which ones supersede it, and which pods they block."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.model.disruption.drain import DrainState, PodDrainRule
from tenure.model.interruption.messages import EventKind, InterruptionMessage
from tenure.model.interruption.records import ApprovalDecision
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.interruption.decision import (
    approvable_events,
    decide_interruption,
    draining_event,
    overrides_do_not_disrupt,
    pods_blocked_by_event,
    superseding_interruption,
)
from tests.unit.policy import interruption_builders as ev
from tests.unit.policy.builders import NOW
from tests.unit.policy.interruption_builders import (
    DEFER,
    DRAIN_RECOMMENDED,
    IN_TWO_DAYS,
    TWO_DAYS,
    UNREAD,
    WHY,
    YES,
    approval,
    interruption_message,
    node_with_events,
)

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


def test_blocked_pods_stay_blocked_while_rules_are_unreadable() -> None:
    early = DEFERRED_CLASSES[0]
    state = ev.drained_for(IN_TWO_DAYS, event_rules={"workloads": [early]}, observed=UNREAD)
    assert blocked_pods(state) == (), "its lead is reached"
    late = ev.drained_for(
        IN_TWO_DAYS, event_rules={"workloads": [{**early, "lead": "1h"}]}, decision=YES, observed=UNREAD
    )
    (blocked,) = blocked_pods(late)
    assert blocked.blocked and WHY in blocked.why
