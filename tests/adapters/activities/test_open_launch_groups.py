"""`find_open_groups` queries the workflows that launch instances, on a real Temporal server."""

import asyncio
import uuid
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.model.errors import TryLater
from tenure.model.launch import LaunchGroup, LaunchGroupMember
from tests.support.fakes.cloud import REQUEST
from tests.support.fakes.worker import WorkerHarness
from tests.support.product.eventually import wait_until
from tests.support.product.shared_sandbox import SharedSandbox
from tests.support.workflows.coordinators import start_provisioning
from workflows import ids


@pytest.fixture
async def fake(shared_sandbox: SharedSandbox) -> WorkerHarness:
    client = await Client.connect(shared_sandbox.temporal_address, data_converter=pydantic_data_converter)
    return WorkerHarness(client, cluster=f"groups-{uuid.uuid4().hex[:8]}")


async def start_launch_groups(fake: WorkerHarness, *groups: str) -> None:
    """Start the Provisioning workflow with these groups, whose launches wait for EC2."""
    launch_groups = tuple(
        LaunchGroup(group_id=one, members=(LaunchGroupMember(name=one, uid=one),), request=REQUEST) for one in groups
    )
    await start_provisioning(fake, groups=launch_groups)


async def test_launch_group_is_open_until_its_instances_are_assigned(fake: WorkerHarness) -> None:
    fake.fleet.gate = asyncio.Event()
    async with fake.running_worker():
        await start_launch_groups(fake, "plan-0", "plan-1")
        assert await fake.workflows.find_open_groups({"plan-1", "plan-2"}) == {"plan-1"}
        fake.fleet.gate.set()

        async def no_group_is_open() -> None:
            assert await fake.workflows.find_open_groups({"plan-0", "plan-1"}) == set()

        await wait_until(no_group_is_open)
        await fake.client.get_workflow_handle(ids.provisioning(fake.cluster)).terminate()


async def test_nodeclaim_that_launches_alone_is_a_group_with_its_name(fake: WorkerHarness) -> None:
    fake.fleet.gate = asyncio.Event()
    async with fake.running_worker():
        handle = await fake.start(fake.claims.add("alone"), exists=True)

        async def is_open() -> None:
            assert await fake.workflows.find_open_groups({"alone", "alo", "a'b"}) == {"alone"}

        await wait_until(is_open)
        fake.fleet.gate.set()

        async def no_group_is_open() -> None:
            assert await fake.workflows.find_open_groups({"alone"}) == set()

        await wait_until(no_group_is_open)
        await handle.terminate()


async def test_no_group_is_open_without_workflows(fake: WorkerHarness) -> None:
    assert await fake.workflows.find_open_groups({"plan-1"}) == set()


async def test_find_open_groups_raises_try_later_without_workers(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.workflow_client._RPC_TIMEOUT", timedelta(seconds=0.5))
    await start_launch_groups(fake, "plan-1")
    with pytest.raises(TryLater, match="cannot be listed"):
        await fake.workflows.find_open_groups({"plan-1"})
    await fake.client.get_workflow_handle(ids.provisioning(fake.cluster)).terminate()
