"""Records of events for `tenure events`: policy, action, and a description of the outcome."""

import pytest

from tenure.model.interruption.records import EventRecord, InstanceStopStart
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.policy.interruption.event_texts import event_records
from tenure.policy.interruption.events import event_key, record_done
from tests.unit.policy.builders import NOW, after
from tests.unit.policy.interruption_builders import interruption_message, node_with_events


def record(state: NodeClaimState) -> EventRecord:
    [one] = event_records(state, (), NOW)
    return one


def with_event_policies(state: NodeClaimState, **names: str) -> NodeClaimState:
    return state.model_copy(update={"observed": state.observed.model_copy(update={"event_policies": names})})


def draining_state(state: NodeClaimState, key: str, disruption: str = "Empty") -> NodeClaimState:
    return state.model_copy(update={"phase": Phase.DRAIN, "interrupted": key, "disruption": disruption})


SPOT = interruption_message("spotInterruption")
MAINTENANCE = interruption_message(starts=after(hours=48), code="instance-stop")
KEY = event_key(MAINTENANCE)


def test_record_without_policy_has_the_default_action() -> None:
    one = record(node_with_events(SPOT))
    assert (one.policy, one.action, one.done) == ("", "drain", "the node is to be drained")


def test_record_names_the_policies_of_the_kind() -> None:
    state = with_event_policies(node_with_events(SPOT), spotInterruption="web, all", scheduledChange="databases")
    assert record(state).policy == "web, all"


def test_record_distinguishes_termination_for_the_event_from_other_reasons() -> None:
    assert record(draining_state(node_with_events(SPOT), "spotInterruption")).done == "the node is drained"
    assert record(draining_state(node_with_events(SPOT), "")).done == "the node is terminated for another reason: Empty"
    forced = interruption_message("instanceStatus", source="status")
    assert record(draining_state(node_with_events(forced), "instanceStatus")).done == "the node is terminated"


@pytest.mark.parametrize(
    ("rules", "done", "waits"),
    [
        ({"action": "ignore"}, "ignored", False),
        ({"action": "notify"}, "no action", False),
        ({"action": "deferUntilEventStart", "lead": "1h"}, "deferred until", True),
        ({"action": "waitForApproval"}, "waits for approval until", True),
        ({"action": "stopStart"}, "the instance is stopped and started (drain)", True),
    ],
)
def test_record_describes_action_and_wait(rules: dict[str, str], done: str, waits: bool) -> None:
    one = record(node_with_events(MAINTENANCE, event_rules={"scheduledChange": rules}))
    assert one.done.startswith(done) and one.waits is waits and one.action == rules["action"]


def test_completed_stop_start_is_recorded_as_done() -> None:
    state = node_with_events(MAINTENANCE, event_rules={"scheduledChange": {"action": "stopStart"}})
    stop = InstanceStopStart(key=KEY, step="done", since=NOW)
    stopped_and_started = state.model_copy(
        update={"interruptions": record_done(state.interruptions, KEY), "stop": stop}
    )
    assert (
        record(stopped_and_started).done == "the instance was stopped and started, the node kept"
        and not record(stopped_and_started).waits
    )


def test_since_changes_only_with_the_outcome() -> None:
    state = node_with_events(MAINTENANCE, event_rules={"scheduledChange": {"action": "notify"}})
    before = event_records(state, (), NOW)
    assert event_records(state, before, after(hours=3)) == before
    moved = node_with_events(MAINTENANCE, event_rules={"scheduledChange": {"action": "waitForApproval"}})
    [later] = event_records(moved, before, after(hours=3))
    assert later.since == after(hours=3) and later.received_at == before[0].received_at


def test_record_without_action_is_unchanged_by_an_unrelated_termination() -> None:
    notified = node_with_events(MAINTENANCE, event_rules={"scheduledChange": {"action": "notify"}})
    before = event_records(notified, (), NOW)
    assert event_records(draining_state(notified, ""), before, after(hours=3)) == before
    waiting = node_with_events(MAINTENANCE, event_rules={"scheduledChange": {"action": "waitForApproval"}})
    [ended] = event_records(draining_state(waiting, ""), event_records(waiting, (), NOW), after(hours=3))
    assert ended.done == "the node is terminated for another reason: Empty" and not ended.waits
