"""A node's whole life, phase by phase, on the time-skipping server with the world faked at the ports."""

from datetime import timedelta
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from model.lifecycle import Phase
from tests.fakes.worker import World
from tests.workflows.eventually import eventually, in_phase
from workflows.nodeclaim import NodeClaimWorkflow

Handle = WorkflowHandle[NodeClaimWorkflow, Any]


async def ready(world: World, skipping: WorkflowEnvironment, **spec: Any) -> Handle:
    """A hand-made NodeClaim whose node is initialized and runs a pod."""
    claim = world.claims.add("a", born=await skipping.get_current_time(), **spec)
    handle = await world.start(claim)
    await in_phase(handle, Phase.REGISTRATION)
    provider = world.claims.found["a"]["status"]["providerID"]
    world.nodes.join("node-a", provider)
    await world.see(handle, node_name="node-a", node_count=1)
    await in_phase(handle, Phase.INITIALIZATION)
    await world.see(handle, node_name="node-a", node_ready=True, boot_id="boot-1")
    await in_phase(handle, Phase.READY)
    return handle


async def delete(world: World, handle: Handle) -> None:
    await world.claims.delete("a", "uid-a")
    await world.see(handle, node_name="node-a", node_ready=True, boot_id="boot-1", deleting=True)


async def test_a_claim_made_by_hand_lives_and_dies(world: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(world, skipping)
    assert world.claims.condition("a", "Initialized").startswith("True")
    assert "karpenter.sh/registered" in world.nodes.found["node-a"].labels

    await delete(world, handle)
    outcome = await handle.result()

    assert [step.phase for step in outcome.story] == [
        Phase.LAUNCH,
        Phase.REGISTRATION,
        Phase.INITIALIZATION,
        Phase.READY,
        Phase.DRAIN,
        Phase.TERMINATION,
        Phase.GONE,
    ]
    assert world.instances.running == {} and len(world.instances.terminated) == 1
    assert world.claims.found == {} and world.nodes.found == {}


async def test_an_undisturbed_life_costs_at_most_80_events(world: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(world, skipping)
    await delete(world, handle)
    await handle.result()
    history = await handle.fetch_history()
    assert len(history.events) <= 80, [EventType.Name(event.event_type) for event in history.events]


async def test_a_ready_node_costs_no_event_in_an_hour(world: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(world, skipping)
    await skipping.sleep(timedelta(seconds=30))
    before = len((await handle.fetch_history()).events)
    await skipping.sleep(timedelta(hours=1))
    assert len((await handle.fetch_history()).events) == before


async def test_a_node_that_never_joins_is_given_up_at_the_registration_deadline(
    world: World, skipping: WorkflowEnvironment
) -> None:
    born = await skipping.get_current_time()
    handle = await world.start(world.claims.add("a", born=born))
    outcome = await handle.result()
    assert outcome.reason == "RegistrationTimeout"
    assert outcome.story[-1].at - born >= timedelta(minutes=15)
    assert "RegistrationTimeout" in world.events.reasons("a")
    assert world.instances.running == {} and world.claims.found == {}


async def test_a_launch_without_capacity_gives_the_claim_up(world: World, skipping: WorkflowEnvironment) -> None:
    world.fleet.capacity = 0
    handle = await world.start(world.claims.add("a", born=await skipping.get_current_time()))
    outcome = await handle.result()
    assert outcome.reason == "InsufficientCapacity"
    assert world.claims.found == {}


async def test_a_node_class_that_is_not_ready_yet_is_waited_for(world: World, skipping: WorkflowEnvironment) -> None:
    world.node_classes.add("default", ready="Unknown")
    handle = await world.start(world.claims.add("a", born=await skipping.get_current_time()))
    await eventually(lambda: blocked(handle, "NodeClassNotReady"))
    world.node_classes.add("default", ready="True")
    await in_phase(handle, Phase.REGISTRATION)


async def test_deleting_a_claim_before_its_node_joined_ends_the_instance(
    world: World, skipping: WorkflowEnvironment
) -> None:
    handle = await world.start(world.claims.add("a", born=await skipping.get_current_time()))
    await in_phase(handle, Phase.REGISTRATION)
    await world.claims.delete("a", "uid-a")
    await world.see(handle, deleting=True)
    outcome = await handle.result()
    assert outcome.reason == "Deleted"
    assert world.instances.running == {} and world.claims.found == {}


async def test_startup_taints_hold_initialization_until_they_leave(world: World, skipping: WorkflowEnvironment) -> None:
    taint = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
    claim = world.claims.add("a", born=await skipping.get_current_time(), startupTaints=[taint])
    handle = await world.start(claim)
    await in_phase(handle, Phase.REGISTRATION)
    world.nodes.join("node-a", world.claims.found["a"]["status"]["providerID"])
    world.nodes.change("node-a", taints=(("node.cilium.io/agent-not-ready", "", "NoExecute"),))
    waiting = "StartupTaintsExist: node.cilium.io/agent-not-ready:NoExecute"
    await world.see(handle, node_name="node-a", node_count=1, node_ready=True, waiting_for=[waiting])
    await eventually(lambda: blocked(handle, "StartupTaintsExist"))
    assert world.claims.condition("a", "Initialized") == "Unknown StartupTaintsExist"
    world.nodes.change("node-a", taints=())
    await world.see(handle, node_name="node-a", node_count=1, node_ready=True)
    await in_phase(handle, Phase.READY)


async def test_a_node_that_never_initializes_is_overdue_and_kept(world: World, skipping: WorkflowEnvironment) -> None:
    handle = await world.start(world.claims.add("a", born=await skipping.get_current_time()))
    await in_phase(handle, Phase.REGISTRATION)
    world.nodes.join("node-a", world.claims.found["a"]["status"]["providerID"], ready=False)
    await world.see(handle, node_name="node-a", node_count=1)
    await in_phase(handle, Phase.INITIALIZATION)
    await skipping.sleep(timedelta(minutes=31))
    state = await handle.query(NodeClaimWorkflow.state)
    assert state.overdue and state.phase is Phase.INITIALIZATION
    assert "InitializationOverdue" in world.events.reasons("a")
    assert world.instances.terminated == []


async def test_a_reboot_takes_the_node_back_through_initialization(world: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(world, skipping)
    world.nodes.change("node-a", boot_id="boot-2")
    await world.see(handle, node_name="node-a", node_ready=True, boot_id="boot-2")
    await eventually(lambda: flapped(handle))
    await in_phase(handle, Phase.READY)
    assert (await handle.query(NodeClaimWorkflow.state)).boot_id == "boot-2"


async def test_an_expired_node_goes_at_its_time(world: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(world, skipping, expireAfter="2h")
    outcome = await handle.result()
    assert outcome.reason == "Expired"
    lived = outcome.story[-1].at - outcome.story[0].at
    assert timedelta(hours=2) <= lived < timedelta(hours=2, minutes=5)


async def test_a_pod_disruption_budget_holds_the_drain_and_is_named(
    world: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(world, skipping)
    world.pods.place("node-a", "web")
    world.pods.blocked["web"] = "PodDisruptionBudget web: 0 disruptions allowed"
    await delete(world, handle)
    await eventually(lambda: blocked(handle, "PodDisruptionBudget web"))
    assert world.instances.terminated == [] and world.pods.evicted == []
    world.pods.blocked.clear()
    await handle.result()
    assert world.pods.evicted == ["web"]


async def test_a_long_life_continues_as_new_and_goes_on(world: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(world, skipping)
    for number in range(500):
        await world.see(handle, node_name="node-a", node_ready=bool(number % 2), boot_id="boot-1")
    await eventually(lambda: rolled(world, handle))
    follower = world.client.get_workflow_handle_for(NodeClaimWorkflow.run, handle.id)
    await delete(world, follower)
    outcome = await follower.result()
    assert [step.phase for step in outcome.story][:2] == [Phase.LAUNCH, Phase.REGISTRATION]
    assert len(world.instances.terminated) == 1


async def blocked(handle: Handle, text: str) -> bool:
    return text in (await handle.query(NodeClaimWorkflow.state)).blocked_by


async def flapped(handle: Handle) -> bool:
    return (await handle.query(NodeClaimWorkflow.state)).flaps == 1


async def rolled(world: World, handle: Handle) -> bool:
    first = world.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
    events = (await first.fetch_history()).events
    return events[-1].event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
