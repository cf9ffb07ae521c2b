"""What is kept of an event for those who ask later: the policy, the action, and in words what was done."""

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


def policies(state: NodeClaimState, **names: str) -> NodeClaimState:
    return state.model_copy(update={"observed": state.observed.model_copy(update={"event_policies": names})})


def draining_state(state: NodeClaimState, key: str, disruption: str = "Empty") -> NodeClaimState:
    return state.model_copy(update={"phase": Phase.DRAIN, "interrupted": key, "disruption": disruption})


SPOT = interruption_message("spotInterruption")
MAINTENANCE = interruption_message(starts=after(hours=48), code="instance-stop")
KEY = event_key(MAINTENANCE)


def test_without_a_policy_karpenter_s_table_is_what_holds() -> None:
    one = record(node_with_events(SPOT))
    assert (one.policy, one.action, one.done) == ("", "drain", "the node is to be drained")


def test_the_policy_that_speaks_of_the_kind_is_named() -> None:
    state = policies(node_with_events(SPOT), spotInterruption="web, all", scheduledChange="databases")
    assert record(state).policy == "web, all"


def test_a_node_that_goes_for_the_event_is_told_from_one_that_goes_anyhow() -> None:
    assert record(draining_state(node_with_events(SPOT), "spotInterruption")).done == "the node is drained"
    assert record(draining_state(node_with_events(SPOT), "")).done == "the node terminates for another reason: Empty"
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
def test_what_follows_is_said_in_words(rules: dict[str, str], done: str, waits: bool) -> None:
    one = record(node_with_events(MAINTENANCE, event_rules={"scheduledChange": rules}))
    assert one.done.startswith(done) and one.waits is waits and one.action == rules["action"]


def test_what_was_done_and_the_node_kept_is_no_waiting() -> None:
    state = node_with_events(MAINTENANCE, event_rules={"scheduledChange": {"action": "stopStart"}})
    stop = InstanceStopStart(key=KEY, step="done", since=NOW)
    stopped_and_started = state.model_copy(
        update={"interruptions": record_done(state.interruptions, KEY), "stop": stop}
    )
    assert (
        record(stopped_and_started).done == "the instance was stopped and started, the node kept"
        and not record(stopped_and_started).waits
    )


def test_since_is_when_it_began_to_be_so() -> None:
    state = node_with_events(MAINTENANCE, event_rules={"scheduledChange": {"action": "notify"}})
    before = event_records(state, (), NOW)
    assert event_records(state, before, after(hours=3)) == before
    moved = node_with_events(MAINTENANCE, event_rules={"scheduledChange": {"action": "waitForApproval"}})
    [later] = event_records(moved, before, after(hours=3))
    assert later.since == after(hours=3) and later.received_at == before[0].received_at


def test_an_event_that_asked_for_no_more_stays_as_it_was_when_the_node_goes_for_another_reason() -> None:
    notified = node_with_events(MAINTENANCE, event_rules={"scheduledChange": {"action": "notify"}})
    before = event_records(notified, (), NOW)
    assert event_records(draining_state(notified, ""), before, after(hours=3)) == before
    waits = node_with_events(MAINTENANCE, event_rules={"scheduledChange": {"action": "waitForApproval"}})
    [ended] = event_records(draining_state(waits, ""), event_records(waits, (), NOW), after(hours=3))
    assert ended.done == "the node terminates for another reason: Empty" and not ended.waits
