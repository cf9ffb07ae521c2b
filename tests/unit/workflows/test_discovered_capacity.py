"""What nodes have shown is kept by the Provisioning workflow, handed to every plan, and answered to launches."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from activities.workflow_client import CachedDiscoveredCapacity
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.discovered_capacity import DiscoveredCapacity, ObservedCapacity
from tenure.model.nodeclaim.state import Phase
from tenure.model.workflow_states import ProvisioningState
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import has_continued_as_new, wait_until, wait_until_phase
from tests.unit.workflows.test_provisioning import (
    Provisioning,
    has_planning_passes,
    signal_pending_pods,
    start_provisioning,
)
from workflows import ids
from workflows.provisioner import ProvisioningWorkflow

IMAGE = "ami-1"
EARLIER = timedelta(minutes=1)


@pytest.fixture
async def handle(fake: WorkerHarness) -> Provisioning:
    return await start_provisioning(fake)


def discovered_memory(memory: int, instance_type: str = "m5.large") -> DiscoveredCapacity:
    return DiscoveredCapacity(images={IMAGE: {instance_type: memory}})


async def signal_discovered(handle: Provisioning, discovered: DiscoveredCapacity, *in_use: str) -> None:
    await handle.signal(
        ProvisioningWorkflow.capacity_discovered, ObservedCapacity(discovered=discovered, images=in_use or (IMAGE,))
    )


async def query_discovered(handle: Provisioning) -> DiscoveredCapacity:
    return await handle.query(ProvisioningWorkflow.discovered_capacity)


async def test_the_next_plan_is_told_the_smallest(
    fake: WorkerHarness, handle: Provisioning, skipping: WorkflowEnvironment
) -> None:
    for memory in (7650, 7640, 7700):
        await signal_discovered(handle, discovered_memory(memory))
    async with fake.running_planner():
        await signal_pending_pods(fake, handle, await skipping.get_current_time() - EARLIER)
        await wait_until(lambda: has_planning_passes(fake, 1))
    assert fake.host.planned[0].discovered == discovered_memory(7640)


async def test_it_outlives_a_run(
    fake: WorkerHarness, handle: Provisioning, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 10)
    await signal_discovered(handle, discovered_memory(7640))
    following: Provisioning = fake.client.get_workflow_handle(handle.id)
    async with fake.running_planner():
        while not await has_continued_as_new(fake.client, handle):
            count = len(fake.host.planned) + 1
            await signal_pending_pods(fake, following, await skipping.get_current_time() - EARLIER)
            await wait_until(lambda count=count: has_planning_passes(fake, count))  # type: ignore[misc]
    assert await query_discovered(following) == discovered_memory(7640)


async def test_an_image_that_nobody_uses_is_forgotten_after_sixty_days(
    fake: WorkerHarness, handle: Provisioning, skipping: WorkflowEnvironment
) -> None:
    await signal_discovered(handle, discovered_memory(7640))
    await signal_discovered(handle, DiscoveredCapacity(), "ami-2")
    await skipping.sleep(timedelta(days=61))
    assert await query_discovered(handle) == discovered_memory(7640)
    await signal_discovered(handle, DiscoveredCapacity(), "ami-2")
    assert await query_discovered(handle) == DiscoveredCapacity()


async def test_a_claim_that_launches_alone_is_chosen_for_by_what_was_learnt(
    fake: WorkerHarness, handle: Provisioning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.workflow_client._QUERY_TIMEOUT", timedelta(minutes=1))
    await signal_discovered(handle, discovered_memory(7640))
    fake.claims.add("by-hand")
    nodeclaim_handle = await fake.start(NodeClaim.model_validate(fake.claims.found["by-hand"]))
    await wait_until_phase(nodeclaim_handle, Phase.REGISTRATION)
    assert fake.fleet.discovered == discovered_memory(7640)


async def test_a_launch_waits_for_nobody_where_there_is_no_such_workflow(fake: WorkerHarness) -> None:
    fake.claims.add("by-hand")
    handle = await fake.start(NodeClaim.model_validate(fake.claims.found["by-hand"]))
    await wait_until_phase(handle, Phase.REGISTRATION)
    assert fake.fleet.discovered == DiscoveredCapacity()


async def test_a_launch_goes_by_what_was_known_where_the_workflow_does_not_answer(fake: WorkerHarness) -> None:
    name = ids.provisioning(fake.cluster)
    state = ProvisioningState(cluster=fake.cluster)
    await fake.client.start_workflow(ProvisioningWorkflow.run, state, id=name, task_queue="nobody-polls-it")
    machines = CachedDiscoveredCapacity(fake.client, name)
    machines._known = discovered_memory(7640)
    assert await machines.fetch() == discovered_memory(7640)


async def test_launches_that_come_together_ask_once(
    fake: WorkerHarness, handle: Provisioning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.workflow_client._QUERY_TIMEOUT", timedelta(minutes=1))
    await signal_discovered(handle, discovered_memory(7640))
    now = 0.0
    machines = CachedDiscoveredCapacity(fake.client, handle.id, clock=lambda: now)
    assert set(map(str, await asyncio.gather(*(machines.fetch() for _ in range(20))))) == {str(discovered_memory(7640))}
    await signal_discovered(handle, discovered_memory(7000))
    assert await machines.fetch() == discovered_memory(7640)
    now = 3.0
    assert await machines.fetch() == discovered_memory(7000)
