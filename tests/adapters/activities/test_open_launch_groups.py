"""Which launch groups are open is asked of the workflows that launch, on a real Temporal service."""

import asyncio
import uuid
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.model.errors import TryLater
from tenure.model.launch import LaunchGroup, LaunchGroupMember
from tenure.model.workflow_states import ProvisioningState
from tests.support.fakes.cloud import REQUEST
from tests.support.fakes.worker import WorkerHarness
from tests.support.product.eventually import wait_until
from tests.support.product.shared_sandbox import SharedSandbox
from workflows import ids
from workflows.provisioner import ProvisioningWorkflow


@pytest.fixture
async def fake(shared_sandbox: SharedSandbox) -> WorkerHarness:
    client = await Client.connect(shared_sandbox.temporal_address, data_converter=pydantic_data_converter)
    return WorkerHarness(client, cluster=f"groups-{uuid.uuid4().hex[:8]}")


async def provisioning(fake: WorkerHarness, *groups: str) -> None:
    """Whose launches wait for EC2."""
    made = tuple(
        LaunchGroup(group_id=one, members=(LaunchGroupMember(name=one, uid=one),), request=REQUEST) for one in groups
    )
    await fake.client.start_workflow(
        ProvisioningWorkflow.run,
        ProvisioningState(cluster=fake.cluster, groups=made),
        id=ids.provisioning(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )


async def test_a_group_is_open_until_all_of_it_is_handed_out(fake: WorkerHarness) -> None:
    fake.fleet.gate = asyncio.Event()
    async with fake.running_worker():
        await provisioning(fake, "plan-0", "plan-1")
        assert await fake.workflows.find_open_groups({"plan-1", "plan-2"}) == {"plan-1"}
        fake.fleet.gate.set()

        async def closed() -> None:
            assert await fake.workflows.find_open_groups({"plan-0", "plan-1"}) == set()

        await wait_until(closed)
        await fake.client.get_workflow_handle(ids.provisioning(fake.cluster)).terminate()


async def test_a_nodeclaim_that_launches_alone_is_a_group_of_its_name(fake: WorkerHarness) -> None:
    fake.fleet.gate = asyncio.Event()
    async with fake.running_worker():
        handle = await fake.start(fake.claims.add("alone"), exists=True)

        async def is_open() -> None:
            assert await fake.workflows.find_open_groups({"alone", "alo", "a'b"}) == {"alone"}

        await wait_until(is_open)
        fake.fleet.gate.set()

        async def closed() -> None:
            assert await fake.workflows.find_open_groups({"alone"}) == set()

        await wait_until(closed)
        await handle.terminate()


async def test_without_any_workflow_no_group_is_open(fake: WorkerHarness) -> None:
    assert await fake.workflows.find_open_groups({"plan-1"}) == set()


async def test_while_no_worker_answers_nobody_can_tell(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.workflow_client._RPC_TIMEOUT", timedelta(seconds=0.5))
    await provisioning(fake, "plan-1")
    with pytest.raises(TryLater, match="cannot be asked"):
        await fake.workflows.find_open_groups({"plan-1"})
    await fake.client.get_workflow_handle(ids.provisioning(fake.cluster)).terminate()
