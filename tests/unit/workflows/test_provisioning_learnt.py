"""What nodes have shown is kept by the Provisioning workflow, handed to every plan, and answered to launches."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from activities.workflow_client import KeptMachines
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.discovered_capacity import Learnt, LearntSeen
from tenure.model.nodeclaim_state import Phase
from tenure.model.workflow_states import ProvisioningState
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually, in_phase, rolled
from tests.unit.workflows.test_provisioning import Provisioning, demand, passes, provisioning
from workflows import ids
from workflows.provisioning import ProvisioningWorkflow

IMAGE = "ami-1"
EARLIER = timedelta(minutes=1)


@pytest.fixture
async def handle(fake: World) -> Provisioning:
    return await provisioning(fake)


def shown(memory: int, instance_type: str = "m5.large") -> Learnt:
    return Learnt(images={IMAGE: {instance_type: memory}})


async def teach(handle: Provisioning, learnt: Learnt, *in_use: str) -> None:
    await handle.signal(ProvisioningWorkflow.learnt, LearntSeen(learnt=learnt, images=in_use or (IMAGE,)))


async def kept(handle: Provisioning) -> Learnt:
    return await handle.query(ProvisioningWorkflow.machines)


async def test_the_next_plan_is_told_the_smallest(
    fake: World, handle: Provisioning, skipping: WorkflowEnvironment
) -> None:
    for memory in (7650, 7640, 7700):
        await teach(handle, shown(memory))
    async with fake.planning():
        await demand(fake, handle, await skipping.get_current_time() - EARLIER)
        await eventually(lambda: passes(fake, 1))
    assert fake.host.planned[0].learnt == shown(7640)


async def test_it_outlives_a_run(
    fake: World, handle: Provisioning, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "ROLL_AT_EVENTS", 10)
    await teach(handle, shown(7640))
    following: Provisioning = fake.client.get_workflow_handle(handle.id)
    async with fake.planning():
        while not await rolled(fake.client, handle):
            count = len(fake.host.planned) + 1
            await demand(fake, following, await skipping.get_current_time() - EARLIER)
            await eventually(lambda count=count: passes(fake, count))  # type: ignore[misc]
    assert await kept(following) == shown(7640)


async def test_an_image_that_nobody_uses_is_forgotten_after_sixty_days(
    fake: World, handle: Provisioning, skipping: WorkflowEnvironment
) -> None:
    await teach(handle, shown(7640))
    await teach(handle, Learnt(), "ami-2")
    await skipping.sleep(timedelta(days=61))
    assert await kept(handle) == shown(7640)
    await teach(handle, Learnt(), "ami-2")
    assert await kept(handle) == Learnt()


async def test_a_claim_that_launches_alone_is_chosen_for_by_what_was_learnt(
    fake: World, handle: Provisioning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.workflow_client._ANSWER_IN", timedelta(minutes=1))
    await teach(handle, shown(7640))
    fake.claims.add("by-hand")
    life = await fake.start(NodeClaim.model_validate(fake.claims.found["by-hand"]))
    await in_phase(life, Phase.REGISTRATION)
    assert fake.fleet.learnt == shown(7640)


async def test_a_launch_waits_for_nobody_where_there_is_no_such_workflow(fake: World) -> None:
    fake.claims.add("by-hand")
    life = await fake.start(NodeClaim.model_validate(fake.claims.found["by-hand"]))
    await in_phase(life, Phase.REGISTRATION)
    assert fake.fleet.learnt == Learnt()


async def test_a_launch_goes_by_what_was_known_where_the_workflow_does_not_answer(fake: World) -> None:
    name = ids.provisioning(fake.cluster)
    state = ProvisioningState(cluster=fake.cluster)
    await fake.client.start_workflow(ProvisioningWorkflow.run, state, id=name, task_queue="nobody-polls-it")
    machines = KeptMachines(fake.client, name)
    machines._known = shown(7640)
    assert await machines.learnt() == shown(7640)


async def test_launches_that_come_together_ask_once(
    fake: World, handle: Provisioning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.workflow_client._ANSWER_IN", timedelta(minutes=1))
    await teach(handle, shown(7640))
    now = 0.0
    machines = KeptMachines(fake.client, handle.id, clock=lambda: now)
    assert set(map(str, await asyncio.gather(*(machines.learnt() for _ in range(20))))) == {str(shown(7640))}
    await teach(handle, shown(7000))
    assert await machines.learnt() == shown(7640)
    now = 3.0
    assert await machines.learnt() == shown(7000)
