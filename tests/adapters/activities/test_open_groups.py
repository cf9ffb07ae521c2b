"""Which launch groups are open is asked of the workflows that launch, on a real Temporal service."""

import asyncio
import uuid
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from activities.workflow_client import OpenGroups
from tenure.model.errors import TryLater
from tenure.model.launch import LaunchGroup, Member
from tenure.model.workflow_states import ProvisioningState
from tests.support.fakes.cloud import REQUEST
from tests.support.fakes.worker import World
from tests.support.product.eventually import eventually
from tests.support.product.shared_sandbox import SharedSandbox
from workflows import ids
from workflows.provisioning import ProvisioningWorkflow
from workflows.visibility import Names


@pytest.fixture
async def fake(shared_sandbox: SharedSandbox) -> World:
    client = await Client.connect(shared_sandbox.temporal_address, data_converter=pydantic_data_converter)
    return World(client, cluster=f"groups-{uuid.uuid4().hex[:8]}")


async def provisioning(fake: World, *groups: str) -> None:
    """Whose launches wait for EC2."""
    made = tuple(LaunchGroup(group_id=one, members=(Member(name=one, uid=one),), request=REQUEST) for one in groups)
    await fake.client.start_workflow(
        ProvisioningWorkflow.run,
        ProvisioningState(cluster=fake.cluster, groups=made),
        id=ids.provisioning(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )


async def test_a_group_is_open_until_all_of_it_is_handed_out(fake: World) -> None:
    groups = OpenGroups(fake.client, Names(fake.cluster))
    fake.fleet.gate = asyncio.Event()
    async with fake.working():
        await provisioning(fake, "plan-0", "plan-1")
        assert await groups.open({"plan-1", "plan-2"}) == {"plan-1"}
        fake.fleet.gate.set()

        async def closed() -> None:
            assert await groups.open({"plan-0", "plan-1"}) == set()

        await eventually(closed)
        await fake.client.get_workflow_handle(ids.provisioning(fake.cluster)).terminate()


async def test_a_nodeclaim_that_launches_alone_is_a_group_of_its_name(fake: World) -> None:
    groups = OpenGroups(fake.client, Names(fake.cluster))
    fake.fleet.gate = asyncio.Event()
    async with fake.working():
        life = await fake.start(fake.claims.add("alone"), exists=True)

        async def is_open() -> None:
            assert await groups.open({"alone", "alo", "a'b"}) == {"alone"}

        await eventually(is_open)
        fake.fleet.gate.set()

        async def closed() -> None:
            assert await groups.open({"alone"}) == set()

        await eventually(closed)
        await life.terminate()


async def test_without_any_workflow_no_group_is_open(fake: World) -> None:
    assert await OpenGroups(fake.client, Names(fake.cluster)).open({"plan-1"}) == set()


async def test_while_no_worker_answers_nobody_can_tell(fake: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.workflow_client._PATIENCE", timedelta(seconds=0.5))
    await provisioning(fake, "plan-1")
    with pytest.raises(TryLater, match="cannot be asked"):
        await OpenGroups(fake.client, Names(fake.cluster)).open({"plan-1"})
    await fake.client.get_workflow_handle(ids.provisioning(fake.cluster)).terminate()
