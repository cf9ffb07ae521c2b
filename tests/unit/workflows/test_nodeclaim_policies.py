"""LifecyclePolicies at work in a life: deadlines that are other than usual or move, and what follows when they pass."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.model.launch import LaunchRefused
from tenure.model.nodeclaim_state import ClaimState, Phase
from tenure.model.provisioning import Expected, PhaseTimes
from tenure.policy.lifecycle.deadlines import blocked_by
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, blocked, eventually, has_come, in_phase, in_time, state_of
from tests.support.workflows.lives import BUSY, JOINED, born, delete, joined, launched, ready
from tests.unit.workflows.test_nodeclaim_rebuilt import lived_in

STAYS: dict[str, Any] = {"registration": {"whenOverdue": "alarm"}}
OVERDUE = labels.OVERDUE
COSTLY = (
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_TIMER_FIRED,
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_MARKER_RECORDED,
)


async def overdue(handle: Handle) -> bool:
    return (await state_of(handle)).overdue


async def told(fake: World, condition: str) -> bool:
    return fake.claims.condition("a", OVERDUE) == condition


def lived(state: ClaimState) -> timedelta:
    assert state.deadline
    return state.deadline - state.identity.created


async def test_a_policy_s_deadline_ends_registration_sooner(fake: World, skipping: WorkflowEnvironment) -> None:
    claim = await born(fake, skipping)
    handle = await fake.start(claim, rules={"registration": {"deadline": "6m"}})
    outcome = await handle.result()
    assert outcome.reason == "RegistrationTimeout"
    assert claim.metadata.creation_timestamp
    took = outcome.story[-1].at - claim.metadata.creation_timestamp
    assert timedelta(minutes=6) <= took < timedelta(minutes=7)


async def test_a_deadline_that_moves_while_it_is_waited_for_is_kept(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await launched(fake, skipping)
    assert lived(await state_of(handle)) == timedelta(minutes=15)
    await fake.see(handle, rules={"registration": {"deadline": "40m"}})
    await skipping.sleep(timedelta(minutes=30))
    state = await state_of(handle)
    assert (state.phase, state.overdue, lived(state)) == (Phase.REGISTRATION, False, timedelta(minutes=40))
    await fake.see(handle, rules={"registration": {"deadline": "20m"}})
    assert (await handle.result()).reason == "RegistrationTimeout"


async def test_what_is_kept_past_its_deadline_waits_for_a_person_and_says_so_everywhere(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await launched(fake, skipping)
    await fake.see(handle, rules=STAYS)
    await in_time(skipping, lambda: told(fake, "True Registration"), minutes=1)
    state = await state_of(handle)
    assert state.overdue and blocked_by(state).startswith("waits for a person: ")
    assert fake.events.reasons("a").count("RegistrationOverdue") == 1
    await skipping.sleep(timedelta(hours=5))
    assert (await state_of(handle)).phase is Phase.REGISTRATION and fake.instances.terminated == []

    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.see(handle, **JOINED, rules=STAYS)
    await in_phase(handle, Phase.INITIALIZATION)
    await eventually(lambda: told(fake, ""))
    assert not (await state_of(handle)).overdue


async def test_a_node_that_waits_for_a_person_costs_nothing_meanwhile(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await launched(fake, skipping)
    await fake.see(handle, rules=STAYS)
    await in_time(skipping, lambda: told(fake, "True Registration"), minutes=1)
    await skipping.sleep(timedelta(minutes=1))
    before = len((await handle.fetch_history()).events)
    await skipping.sleep(timedelta(days=1))
    assert len((await handle.fetch_history()).events) == before


async def test_a_policy_that_wants_it_gone_after_all_is_heeded(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await launched(fake, skipping)
    await fake.see(handle, rules=STAYS)
    await in_time(skipping, lambda: overdue(handle), minutes=1)
    await fake.see(handle)
    assert (await handle.result()).reason == "RegistrationTimeout"


async def test_what_is_overdue_is_so_no_more_when_its_deadline_is_put_off(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await joined(fake, skipping)
    await in_time(skipping, lambda: told(fake, "True Initialization"), minutes=1)
    assert "InitializationOverdue" in fake.events.reasons("a")
    await fake.see(handle, **JOINED, rules={"initialization": {"deadline": "2h"}})
    await eventually(lambda: told(fake, ""))
    state = await state_of(handle)
    assert not state.overdue and "person" not in blocked_by(state)
    await in_time(skipping, lambda: told(fake, "True Initialization"), minutes=5)


async def test_what_holds_up_an_overdue_node_is_told_when_it_is_something_else_and_costs_no_timers(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await joined(fake, skipping)
    await in_time(skipping, lambda: told(fake, "True Initialization"), minutes=1)
    assert "NodeNotReady" in blocked_by(await state_of(handle))
    await fake.see(handle, **BUSY, waiting_for=["StartupTaintsExist: example.com/late"])
    await in_time(skipping, lambda: blocked(handle, "example.com/late"), seconds=5)
    await skipping.sleep(timedelta(minutes=1))
    before = len((await handle.fetch_history()).events)
    await skipping.sleep(timedelta(hours=2))
    assert len((await handle.fetch_history()).events) == before


@pytest.mark.parametrize("action", ["replace", "terminate"])
async def test_a_node_that_never_initializes_goes_where_a_policy_says_so(
    fake: World, skipping: WorkflowEnvironment, action: str
) -> None:
    handle = await joined(fake, skipping)
    fake.pods.place("node-a", "web")
    fake.pods.blocked["web"] = "budget 0"
    await fake.see(handle, **JOINED, rules={"initialization": {"deadline": "10m", "whenOverdue": action}})
    if action == "replace":
        await skipping.sleep(timedelta(minutes=10, seconds=1))
        await in_phase(handle, Phase.DRAIN)
        await eventually(lambda: blocked(handle, "budget 0"))
        fake.pods.blocked.clear()
    outcome = await handle.result()
    assert outcome.reason == "InitializationTimeout" and "InitializationTimeout" in fake.events.reasons("a")
    assert fake.instances.running == {} and fake.claims.found == {}
    assert OVERDUE not in fake.events.reasons("a") and "InitializationOverdue" not in fake.events.reasons("a")


async def test_a_node_that_came_through_while_nobody_looked_is_not_replaced(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await joined(fake, skipping)
    fake.nodes.change("node-a", ready=True)
    await fake.see(handle, **JOINED, rules={"initialization": {"deadline": "10m", "whenOverdue": "replace"}})
    await skipping.sleep(timedelta(minutes=10, seconds=1))
    await in_phase(handle, Phase.READY)
    assert "InitializationTimeout" not in fake.events.reasons("a")


async def test_a_launch_that_is_kept_tries_on_past_its_deadline(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.fleet.refusal = LaunchRefused(reason="NodeClassNotReady", message="no subnet", final=False)
    claim = await born(fake, skipping)
    rules = {"launch": {"whenOverdue": "alarm"}}
    handle = await fake.start(claim, rules=rules)
    await in_time(skipping, lambda: overdue(handle), seconds=30)
    state = await state_of(handle)
    assert state.phase is Phase.LAUNCH and blocked_by(state).startswith("waits for a person: see why EC2")
    fake.fleet.refusal = None
    await in_time(skipping, lambda: has_come(handle, Phase.REGISTRATION), seconds=30)


async def test_a_claim_whose_group_is_kept_waiting_can_be_deleted(fake: World, skipping: WorkflowEnvironment) -> None:
    claim = await born(fake, skipping, annotations={labels.LAUNCH_GROUP: "group-1"})
    rules = {"launch": {"whenOverdue": "alarm"}}
    handle = await fake.start(claim, rules=rules)
    await in_time(skipping, lambda: told(fake, "True Launch"), minutes=1)
    await skipping.sleep(timedelta(hours=3))
    await fake.see(handle, deleting=True, rules=rules)
    assert (await handle.result()).reason == "Deleted"


async def test_a_deadline_that_moves_while_a_drain_runs_makes_it_overdue(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    fake.pods.place("node-a", "web")
    fake.pods.blocked["web"] = "budget 0"
    await delete(fake, handle)
    await eventually(lambda: blocked(handle, "budget 0"))
    await fake.see(handle, **BUSY, deleting=True, rules={"drain": {"deadline": "1ms"}})
    await eventually(lambda: overdue(handle))
    assert "budget 0" in blocked_by(await state_of(handle))
    await eventually(lambda: told(fake, "True Drain"))
    fake.pods.blocked.clear()
    await handle.result()


async def test_a_life_that_is_made_anew_takes_off_what_it_finds_written(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    claim = await lived_in(fake, skipping, "Registered", "Initialized")
    written = {"type": OVERDUE, "status": "True", "reason": "Initialization"}
    fake.claims.found["a"]["status"]["conditions"].append(written)
    handle = await fake.start(claim, **BUSY)
    await in_phase(handle, Phase.READY)
    await eventually(lambda: told(fake, ""))


# --- slow ---


async def expecting(fake: World, skipping: WorkflowEnvironment, expected: Expected) -> Handle:
    """As the watch tells it with the first that it tells."""
    claim = await born(fake, skipping)
    handle = await fake.start(claim)
    await fake.see(handle, expected=expected)
    await in_phase(handle, Phase.REGISTRATION)
    return handle


def expectation(minutes: float) -> Expected:
    span = timedelta(minutes=minutes)
    return Expected(otherwise=PhaseTimes(launch=span, registration=span, initialization=span))


async def slow(handle: Handle) -> bool:
    return (await state_of(handle)).slow


async def test_a_node_that_takes_longer_than_others_is_slow_and_not_overdue(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await expecting(fake, skipping, expectation(2))
    await in_time(skipping, lambda: slow(handle), seconds=15)
    state = await state_of(handle)
    assert blocked_by(state).startswith("slow: ") and not state.overdue
    assert fake.claims.condition("a", OVERDUE) == ""
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.see(handle, **JOINED)
    await in_phase(handle, Phase.INITIALIZATION)
    assert not await slow(handle)
    await in_time(skipping, lambda: slow(handle), seconds=15)
    state = await state_of(handle)
    assert blocked_by(state).startswith("slow: NodeNotReady") and not state.overdue
    fake.nodes.change("node-a", ready=True)
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)
    assert blocked_by(await state_of(handle)) == ""


async def test_what_is_expected_of_its_type_counts_before_what_is_expected_of_others(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await expecting(fake, skipping, expectation(1))
    kind = (await state_of(handle)).launched
    assert kind
    patient = PhaseTimes(registration=timedelta(minutes=8))
    other = await expecting_type(fake, skipping, kind.instance_type, patient)
    await skipping.sleep(timedelta(minutes=5))
    assert await slow(handle) and not await slow(other)


async def expecting_type(fake: World, skipping: WorkflowEnvironment, kind: str, times: PhaseTimes) -> Handle:
    claim = fake.claims.add("b", born=await skipping.get_current_time())
    expected = Expected(by_type={kind: times}, otherwise=PhaseTimes(registration=timedelta(minutes=1)))
    handle = await fake.start(claim, expected=expected)
    await in_phase(handle, Phase.REGISTRATION)
    return handle


async def test_a_node_that_is_not_slow_costs_no_event_for_it(fake: World, skipping: WorkflowEnvironment) -> None:
    spent = []
    for name, expected in (("a", None), ("b", expectation(3))):
        claim = fake.claims.add(name, born=await skipping.get_current_time())
        handle = await fake.start(claim, expected=expected)
        await in_phase(handle, Phase.REGISTRATION)
        node = f"node-{name}"
        fake.nodes.join(node, fake.claims.found[name]["status"]["providerID"], ready=False)
        await fake.see(handle, node_name=node, node_count=1)
        await in_phase(handle, Phase.INITIALIZATION)
        fake.nodes.change(node, ready=True)
        await fake.see(handle, node_name=node, node_count=1, node_ready=True, boot_id="boot-1")
        await in_phase(handle, Phase.READY)
        await skipping.sleep(timedelta(minutes=10))
        events = (await handle.fetch_history()).events
        spent.append([sum(one.event_type == kind for one in events) for kind in COSTLY])
    assert spent[0] == spent[1]
