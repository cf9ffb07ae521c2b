"""What is kept of an event for those who ask later: the policy, the action, and in words what was done."""

import pytest

from tenure.model.interruption.records import EventRecord, StopStart
from tenure.model.nodeclaim_state import ClaimState, Phase
from tenure.policy.interruption.events import done, key_of
from tenure.policy.interruption.messages import records_of
from tests.unit.policy.builders import NOW, after
from tests.unit.policy.interrupting import notice, told


def record(state: ClaimState) -> EventRecord:
    [one] = records_of(state, (), NOW)
    return one


def policies(state: ClaimState, **names: str) -> ClaimState:
    return state.model_copy(update={"seen": state.seen.model_copy(update={"event_policies": names})})


def going(state: ClaimState, key: str, disruption: str = "Empty") -> ClaimState:
    return state.model_copy(update={"phase": Phase.DRAIN, "interrupted": key, "disruption": disruption})


SPOT = notice("spotInterruption")
MAINTENANCE = notice(starts=after(hours=48), code="instance-stop")
KEY = key_of(MAINTENANCE)


def test_without_a_policy_karpenter_s_table_is_what_holds() -> None:
    one = record(told(SPOT))
    assert (one.policy, one.action, one.done) == ("", "drain", "the node is to be drained")


def test_the_policy_that_speaks_of_the_kind_is_named() -> None:
    state = policies(told(SPOT), spotInterruption="web, all", scheduledChange="databases")
    assert record(state).policy == "web, all"


def test_a_node_that_goes_for_the_event_is_told_from_one_that_goes_anyhow() -> None:
    assert record(going(told(SPOT), "spotInterruption")).done == "the node is drained"
    assert record(going(told(SPOT), "")).done == "the node goes for another reason: Empty"
    forced = notice("instanceStatus", source="status")
    assert record(going(told(forced), "instanceStatus")).done == "the node is terminated"


@pytest.mark.parametrize(
    ("rules", "done", "waits"),
    [
        ({"action": "ignore"}, "ignored", False),
        ({"action": "notify"}, "told, and nothing more", False),
        ({"action": "deferUntilEventStart", "lead": "1h"}, "deferred until", True),
        ({"action": "waitForApproval"}, "waits for approval until", True),
        ({"action": "stopStart"}, "the instance is stopped and started (drain)", True),
    ],
)
def test_what_follows_is_said_in_words(rules: dict[str, str], done: str, waits: bool) -> None:
    one = record(told(MAINTENANCE, said={"scheduledChange": rules}))
    assert one.done.startswith(done) and one.waits is waits and one.action == rules["action"]


def test_what_was_done_and_the_node_kept_is_no_waiting() -> None:
    state = told(MAINTENANCE, said={"scheduledChange": {"action": "stopStart"}})
    stop = StopStart(key=KEY, step="done", since=NOW)
    kept = state.model_copy(update={"notices": done(state.notices, KEY), "stop": stop})
    assert record(kept).done == "the instance was stopped and started, the node kept" and not record(kept).waits


def test_since_is_when_it_began_to_be_so() -> None:
    state = told(MAINTENANCE, said={"scheduledChange": {"action": "notify"}})
    before = records_of(state, (), NOW)
    assert records_of(state, before, after(hours=3)) == before
    moved = told(MAINTENANCE, said={"scheduledChange": {"action": "waitForApproval"}})
    [later] = records_of(moved, before, after(hours=3))
    assert later.since == after(hours=3) and later.heard == before[0].heard


def test_an_event_that_asked_for_no_more_stays_as_it_was_when_the_node_goes_for_another_reason() -> None:
    told_only = told(MAINTENANCE, said={"scheduledChange": {"action": "notify"}})
    before = records_of(told_only, (), NOW)
    assert records_of(going(told_only, ""), before, after(hours=3)) == before
    waits = told(MAINTENANCE, said={"scheduledChange": {"action": "waitForApproval"}})
    [ended] = records_of(going(waits, ""), records_of(waits, (), NOW), after(hours=3))
    assert ended.done == "the node goes for another reason: Empty" and not ended.waits
