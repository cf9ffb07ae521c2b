"""Lifecycle conditions of a Node for AWS events."""

from typing import Any

import pytest

from tenure.apis import labels
from tenure.model.interruption.records import InstanceStopStart
from tenure.model.node_health import NotReadyInterval
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.interruption.event_texts import condition_changes, maintenance_conditions
from tenure.policy.interruption.events import event_key
from tests.unit.policy.builders import before
from tests.unit.policy.interruption_builders import IN_TWO_DAYS, interruption_message, node_with_events

PLANNED, IN_PROGRESS, SHUTDOWN = (
    labels.MAINTENANCE_PLANNED,
    labels.MAINTENANCE_IN_PROGRESS,
    labels.GRACEFUL_SHUTDOWN,
)
STARTED = interruption_message(starts=before(minutes=2))
WITHDRAWN = IN_TWO_DAYS.model_copy(update={"status": "withdrawn"})


def stopping(step: str) -> dict[str, Any]:
    stop = {"key": event_key(IN_TWO_DAYS), "step": step, "since": before(minutes=1)}
    return {"stop": InstanceStopStart.model_validate(stop)}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (node_with_events(), set()),
        (node_with_events(IN_TWO_DAYS), {PLANNED}),
        (node_with_events(WITHDRAWN), set()),
        (node_with_events(STARTED), {PLANNED}),
        (node_with_events(STARTED, not_ready_intervals=(NotReadyInterval(since=before(minutes=1)),)), {IN_PROGRESS}),
        (node_with_events(IN_TWO_DAYS, **stopping("drain")), {PLANNED}),
        (node_with_events(IN_TWO_DAYS, **stopping("stop")), {IN_PROGRESS, SHUTDOWN}),
        (node_with_events(IN_TWO_DAYS, **stopping("back")), {IN_PROGRESS}),
        (node_with_events(IN_TWO_DAYS, **stopping("failed")), {PLANNED}),
        (node_with_events(interruption_message("instanceStopping")), {SHUTDOWN}),
        (node_with_events(interruption_message("spotInterruption")), set()),
        (node_with_events(interruption_message("systemStatus")), set()),
    ],
)
def test_condition_follows_the_event(state: NodeClaimState, expected: set[str]) -> None:
    assert maintenance_conditions(state).keys() == expected


def test_only_changed_conditions_are_patched() -> None:
    state = node_with_events(IN_TWO_DAYS)
    (planned,) = condition_changes(state)
    assert (planned.type, planned.status, planned.reason) == (PLANNED, "True", "TenureInstanceMaintenance")
    assert planned.message.startswith("scheduledChange instance-retirement at ")
    published = state.model_copy(update={"node_conditions": maintenance_conditions(state)})
    assert condition_changes(published) == ()
    over = node_with_events(WITHDRAWN, node_conditions=maintenance_conditions(state))
    assert [(one.type, one.status) for one in condition_changes(over)] == [(PLANNED, "")]
