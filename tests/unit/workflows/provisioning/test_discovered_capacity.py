"""The Provisioning workflow stores discovered capacity and passes it to each plan and launch group."""

from datetime import timedelta

import pytest

import workflows.activity_options
from tenure.model.discovered_capacity import DiscoveredCapacity, ObservedCapacity
from tenure.model.nodeclaim.state import Phase
from tenure.model.plan import PlanOutcome
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import Provisioning, start_provisioning
from tests.support.workflows.eventually import has_continued_as_new, wait_until, wait_until_phase
from tests.unit.workflows.provisioning.provisioning_workflow import (
    has_planning_passes,
    make_launch_draft,
    signal_pending_pods,
    wait_until_launched,
)
from workflows.nodeclaim import NodeClaimWorkflow
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
    return (await handle.query(ProvisioningWorkflow.state)).discovered_capacity.discovered


async def test_next_plan_gets_smallest_discovered_memory(fake: WorkerHarness, handle: Provisioning) -> None:
    for memory in (7650, 7640, 7700):
        await signal_discovered(handle, discovered_memory(memory))
    async with fake.running_planner():
        await signal_pending_pods(fake, handle, await fake.now() - EARLIER)
        await wait_until(lambda: has_planning_passes(fake, 1))
    assert fake.host.planned[0].discovered == discovered_memory(7640)


async def test_discovered_capacity_survives_continue_as_new(
    fake: WorkerHarness, handle: Provisioning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 10)
    await signal_discovered(handle, discovered_memory(7640))
    following: Provisioning = fake.client.get_workflow_handle(handle.id)
    async with fake.running_planner():
        while not await has_continued_as_new(fake.client, handle):
            count = len(fake.host.planned) + 1
            await signal_pending_pods(fake, following, await fake.now() - EARLIER)
            await wait_until(lambda count=count: has_planning_passes(fake, count))  # type: ignore[misc]
    assert await query_discovered(following) == discovered_memory(7640)


async def test_capacity_of_unused_image_expires_after_sixty_days(fake: WorkerHarness, handle: Provisioning) -> None:
    await signal_discovered(handle, discovered_memory(7640))
    await signal_discovered(handle, DiscoveredCapacity(), "ami-2")
    await fake.sleep(days=61)
    assert await query_discovered(handle) == discovered_memory(7640)
    await signal_discovered(handle, DiscoveredCapacity(), "ami-2")
    assert await query_discovered(handle) == DiscoveredCapacity()


async def test_launch_group_gets_capacity_of_images_of_its_nodeclass(fake: WorkerHarness, handle: Provisioning) -> None:
    others = DiscoveredCapacity(images={"ami-2": {"m5.large": 7000}})
    known = ObservedCapacity(
        discovered=discovered_memory(7640).merge(others), images_by_class={"default": (IMAGE,), "other": ("ami-2",)}
    )
    await handle.signal(ProvisioningWorkflow.capacity_discovered, known)
    draft = await make_launch_draft(fake, "a")
    fake.host.outcomes.append(PlanOutcome(plan_id="", drafts=(draft,)))
    async with fake.running_planner():
        await signal_pending_pods(fake, handle, await fake.now() - EARLIER)
        await wait_until_launched(fake, "a")
    assert fake.fleet.discovered == fake.fleet.described_with == discovered_memory(7640)


@pytest.mark.parametrize("known", [DiscoveredCapacity(), discovered_memory(7640)], ids=["no discovery", "discovery"])
async def test_single_launch_uses_capacity_from_workflow_start(fake: WorkerHarness, known: DiscoveredCapacity) -> None:
    claim = fake.claims.add("by-hand")
    nodeclaim_handle = await fake.start(claim, discovered=known)
    await wait_until_phase(nodeclaim_handle, Phase.REGISTRATION)
    assert fake.fleet.discovered == fake.fleet.described_with == known
    assert (await nodeclaim_handle.query(NodeClaimWorkflow.state)).discovered == DiscoveredCapacity()
