"""Deadlines of a LifecyclePolicy: shorter, longer or changed, and the action after they pass."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from tenure.apis import labels
from tenure.model.launch import LaunchRejection
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.plan import ExpectedDurations, PhaseDurations
from tenure.policy.lifecycle.verdict import describe_blocker
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    count_scheduled,
    has_blocker,
    has_state,
    is_blocked_by,
    is_in_phase,
    is_running,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    JOINED,
    create_nodeclaim,
    delete_nodeclaim,
    has_attention_condition,
    launched_nodeclaim,
    ready_nodeclaim,
    registered_nodeclaim,
)
from tests.unit.workflows.phases.test_recovery import add_launched_nodeclaim

ALARM_RULES: dict[str, Any] = {"registration": {"whenOverdue": "alarm"}}
COUNTED_EVENTS = (
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_TIMER_FIRED,
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_MARKER_RECORDED,
)


def age_at_deadline(state: NodeClaimState) -> timedelta:
    assert state.deadline
    return state.deadline - state.identity.created


async def test_deadline_changed_during_wait_applies(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    assert age_at_deadline(await query_state(handle)) == timedelta(minutes=15)
    await fake.signal_observed(handle, rules={"registration": {"deadline": "40m"}})
    await fake.sleep(minutes=30)
    state = await query_state(handle)
    assert (state.phase, state.overdue, age_at_deadline(state)) == (Phase.REGISTRATION, False, timedelta(minutes=40))
    await fake.signal_observed(handle, rules={"registration": {"deadline": "20m"}})
    assert (await handle.result()).reason == "RegistrationTimeout"


async def test_overdue_registration_with_alarm_waits_and_is_reported(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    await fake.signal_observed(handle, rules=ALARM_RULES)
    await wait_until_skipping_time(fake, lambda: has_attention_condition(fake, "True NodeNotJoined"), minutes=1)
    state = await query_state(handle)
    assert state.overdue and describe_blocker(state).startswith("needs attention: ")
    assert fake.events.reasons_for("a").count("RegistrationOverdue") == 1
    await fake.sleep(minutes=1)
    before = len((await handle.fetch_history()).events)
    await fake.sleep(days=1)
    assert len((await handle.fetch_history()).events) == before, "waiting adds no events"
    assert (await query_state(handle)).phase is Phase.REGISTRATION and fake.instances.terminated == []

    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.signal_observed(handle, **JOINED, rules=ALARM_RULES)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    await wait_until(lambda: has_attention_condition(fake, ""))
    assert not (await query_state(handle)).overdue


async def test_action_changed_to_delete_ends_overdue_registration(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    await fake.signal_observed(handle, rules=ALARM_RULES)
    await wait_until_skipping_time(fake, lambda: has_state(handle, overdue=True), minutes=1)
    await fake.signal_observed(handle)
    assert (await handle.result()).reason == "RegistrationTimeout"


async def test_extended_deadline_clears_overdue(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    await wait_until_skipping_time(fake, lambda: has_attention_condition(fake, "True NodeNotReady"), minutes=1)
    assert "InitializationOverdue" in fake.events.reasons_for("a")
    await fake.signal_observed(handle, **JOINED, rules={"initialization": {"deadline": "2h"}})
    await wait_until(lambda: has_attention_condition(fake, ""))
    state = await query_state(handle)
    assert not state.overdue and "person" not in describe_blocker(state)
    await wait_until_skipping_time(fake, lambda: has_attention_condition(fake, "True NodeNotReady"), minutes=5)


async def test_overdue_blocker_update_is_reported_without_timers(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    await wait_until_skipping_time(fake, lambda: has_attention_condition(fake, "True NodeNotReady"), minutes=1)
    assert "NodeNotReady" in describe_blocker(await query_state(handle))
    await fake.signal_observed(handle, **BUSY, waiting_for=["StartupTaintsExist: example.com/late"])
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "example.com/late"), seconds=5)
    await fake.sleep(minutes=1)
    before = len((await handle.fetch_history()).events)
    await fake.sleep(hours=2)
    assert len((await handle.fetch_history()).events) == before


@pytest.mark.parametrize("action", ["replace", "terminate"])
async def test_uninitialized_node_is_replaced_or_terminated_by_policy(fake: WorkerHarness, action: str) -> None:
    handle = await registered_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "budget 0"
    await fake.signal_observed(handle, **JOINED, rules={"initialization": {"deadline": "10m", "whenOverdue": action}})
    if action == "replace":
        await fake.sleep(minutes=10, seconds=1)
        await wait_until_phase(handle, Phase.DRAIN)
        await wait_until(lambda: has_blocker(handle, "budget 0"))
        fake.pods.blocked.clear()
    outcome = await handle.result()
    assert outcome.reason == "InitializationTimeout" and "InitializationTimeout" in fake.events.reasons_for("a")
    assert fake.instances.running == {} and fake.claims.found == {}
    assert not {"NeedsAttention", "InitializationOverdue"} & set(fake.events.reasons_for("a"))


async def test_node_found_initialized_at_deadline_is_not_replaced(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(
        handle, **JOINED, rules={"initialization": {"deadline": "10m", "whenOverdue": "replace"}}
    )
    await fake.sleep(minutes=10, seconds=1)
    await wait_until_phase(handle, Phase.READY)
    assert "InitializationTimeout" not in fake.events.reasons_for("a")


async def test_overdue_launch_with_alarm_keeps_retrying(fake: WorkerHarness) -> None:
    fake.fleet.rejection = LaunchRejection(reason="NodeClassNotReady", message="no subnet", final=False)
    claim = await create_nodeclaim(fake)
    rules = {"launch": {"whenOverdue": "alarm"}}
    handle = await fake.start(claim, rules=rules)
    await wait_until_skipping_time(fake, lambda: has_state(handle, overdue=True), seconds=30)
    state = await query_state(handle)
    assert state.phase is Phase.LAUNCH and describe_blocker(state).startswith("needs attention: read EC2's error")
    fake.fleet.rejection = None
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION), seconds=30)


async def overdue_launch(fake: WorkerHarness) -> Handle:
    """A NodeClaim whose launch has just failed again, long after its deadline. Attempts are two minutes apart."""
    fake.fleet.rejection = LaunchRejection(reason="NodeClassNotReady", message="no subnet", final=False)
    handle = await fake.start(await create_nodeclaim(fake), rules={"launch": {"whenOverdue": "alarm"}})
    await wait_until_skipping_time(fake, lambda: has_state(handle, overdue=True), seconds=30)
    attempts = await count_scheduled(handle, "prepare_launch")

    async def has_repeated_failure() -> bool:
        is_repeated = await count_scheduled(handle, "prepare_launch") > attempts
        return is_repeated and not await is_running(handle, "prepare_launch")

    await wait_until_skipping_time(fake, has_repeated_failure, seconds=5)
    return handle


async def time_until_termination(fake: WorkerHarness, handle: Handle, **observed: Any) -> timedelta:
    """The time from this observation to the end of the launch."""
    began = await fake.now()
    await fake.signal_observed(handle, **observed)
    outcome = await handle.result()
    ended: datetime = next(step.at for step in outcome.history if step.phase is Phase.TERMINATION)
    return ended - began


async def test_action_changed_to_delete_ends_overdue_launch_before_the_next_attempt(fake: WorkerHarness) -> None:
    handle = await overdue_launch(fake)
    assert await time_until_termination(fake, handle) < timedelta(minutes=1)


async def test_removed_nodeclaim_ends_overdue_launch_before_the_next_attempt(fake: WorkerHarness) -> None:
    handle = await overdue_launch(fake)
    fake.claims.found.clear()
    assert await time_until_termination(fake, handle, exists=False) < timedelta(minutes=1)


async def test_nodeclaim_waiting_for_launch_group_can_be_deleted(fake: WorkerHarness) -> None:
    claim = await create_nodeclaim(fake, annotations={labels.LAUNCH_GROUP: "group-1"})
    rules = {"launch": {"whenOverdue": "alarm"}}
    handle = await fake.start(claim, rules=rules)
    await wait_until_skipping_time(fake, lambda: has_attention_condition(fake, "True LaunchOverdue"), minutes=1)
    await fake.sleep(hours=3)
    await fake.signal_observed(handle, deleting=True, rules=rules)
    assert (await handle.result()).reason == "Deleted"


async def test_deadline_shortened_during_drain_makes_it_overdue(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "budget 0"
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "budget 0"))
    await fake.signal_observed(handle, **BUSY, deleting=True, rules={"drain": {"deadline": "1ms"}})
    await wait_until(lambda: has_state(handle, overdue=True))
    assert "budget 0" in describe_blocker(await query_state(handle))
    await wait_until(lambda: has_attention_condition(fake, "True PodDisruptionBudget"))
    assert labels.NEEDS_ATTENTION in {one.type for one in fake.nodes.found["node-a"].conditions}
    assert "DrainOverdue" in fake.events.reasons_for("node-a")
    fake.pods.blocked.clear()
    await handle.result()


async def test_new_workflow_clears_stale_overdue_condition(fake: WorkerHarness) -> None:
    claim = await add_launched_nodeclaim(fake, "Registered", "Initialized")
    written = {"type": labels.NEEDS_ATTENTION, "status": "True", "reason": "NodeNotReady"}
    fake.claims.found["a"]["status"]["conditions"].append(written)
    handle = await fake.start(claim, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    await wait_until(lambda: has_attention_condition(fake, ""))


# --- slow ---


async def start_with_expected_times(fake: WorkerHarness, expected: ExpectedDurations) -> Handle:
    """Start a NodeClaim workflow and signal the expected durations with its first observation."""
    claim = await create_nodeclaim(fake)
    handle = await fake.start(claim)
    await fake.signal_observed(handle, expected=expected)
    await wait_until_phase(handle, Phase.REGISTRATION)
    return handle


def expected_times(minutes: float) -> ExpectedDurations:
    span = timedelta(minutes=minutes)
    return ExpectedDurations(default=PhaseDurations(launch=span, registration=span, initialization=span))


async def test_node_slower_than_expected_is_slow_but_not_overdue(fake: WorkerHarness) -> None:
    handle = await start_with_expected_times(fake, expected_times(2))
    await wait_until_skipping_time(fake, lambda: has_state(handle, slow=True), seconds=15)
    state = await query_state(handle)
    assert describe_blocker(state).startswith("slow: NodeNotJoined") and not state.overdue
    assert fake.claims.condition_text("a", labels.NEEDS_ATTENTION) == ""
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.signal_observed(handle, **JOINED)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    assert not await has_state(handle, slow=True)
    await wait_until_skipping_time(fake, lambda: has_state(handle, slow=True), seconds=15)
    state = await query_state(handle)
    assert describe_blocker(state).startswith("slow: NodeNotReady") and not state.overdue
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    assert describe_blocker(await query_state(handle)) == ""


async def test_expected_durations_that_are_known_later_apply(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    await fake.signal_observed(handle, expected=expected_times(2))
    await fake.sleep(minutes=3)
    assert await has_state(handle, slow=True)


async def test_expected_duration_of_instance_type_takes_precedence(fake: WorkerHarness) -> None:
    handle = await start_with_expected_times(fake, expected_times(1))
    kind = (await query_state(handle)).launched
    assert kind
    long_times = PhaseDurations(registration=timedelta(minutes=8))
    other = await start_with_times_of_type(fake, kind.instance_type, long_times)
    await fake.sleep(minutes=5)
    assert await has_state(handle, slow=True) and not await has_state(other, slow=True)


async def start_with_times_of_type(fake: WorkerHarness, kind: str, times: PhaseDurations) -> Handle:
    claim = fake.claims.add("b", born=await fake.now())
    expected = ExpectedDurations(by_type={kind: times}, default=PhaseDurations(registration=timedelta(minutes=1)))
    handle = await fake.start(claim, expected=expected)
    await wait_until_phase(handle, Phase.REGISTRATION)
    return handle


async def test_node_with_expected_durations_in_time_adds_no_events(fake: WorkerHarness) -> None:
    event_counts = []
    for name, expected in (("a", None), ("b", expected_times(3))):
        claim = fake.claims.add(name, born=await fake.now())
        handle = await fake.start(claim, expected=expected)
        await wait_until_phase(handle, Phase.REGISTRATION)
        node = f"node-{name}"
        fake.nodes.join(node, fake.claims.found[name]["status"]["providerID"], ready=False)
        await fake.signal_observed(handle, node_name=node, node_count=1)
        await wait_until_phase(handle, Phase.INITIALIZATION)
        fake.nodes.update_node(node, ready=True)
        await fake.signal_observed(handle, node_name=node, node_count=1, node_ready=True, boot_id="boot-1")
        await wait_until_phase(handle, Phase.READY)
        await fake.sleep(minutes=10)
        events = (await handle.fetch_history()).events
        event_counts.append([sum(one.event_type == kind for one in events) for kind in COUNTED_EVENTS])
    assert event_counts[0] == event_counts[1]
