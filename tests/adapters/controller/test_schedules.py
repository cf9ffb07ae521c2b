"""A worker removes the Schedules of garbage collection that earlier versions created, on a real Temporal server."""

import uuid
from collections.abc import AsyncIterator

import pytest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleSpec,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError

from tenure.controller.temporal.namespace import remove_schedules
from tests.support.product.eventually import wait_until
from workflows import ids


@pytest.fixture
async def cluster(temporal: Client) -> AsyncIterator[str]:
    name = f"schedules-{uuid.uuid4().hex[:8]}"
    yield name
    await remove_schedules(temporal, name)


async def test_former_schedules_are_removed_with_their_runs(temporal: Client, cluster: str) -> None:
    schedule_ids = (f"{ids.garbage_collection(cluster)}/leases", f"{cluster}/upkeep/instances")
    handles = [
        await temporal.create_schedule(one, former_schedule(cluster, one), trigger_immediately=True)
        for one in schedule_ids
    ]

    async def running_workflow() -> str:
        (run,) = (await handles[0].describe()).info.running_actions
        assert isinstance(run, ScheduleActionExecutionStartWorkflow)
        return run.workflow_id

    async def assert_running() -> None:
        assert (await handles[0].describe()).info.running_actions

    await wait_until(assert_running)
    workflow_id = await running_workflow()
    await remove_schedules(temporal, cluster)
    await remove_schedules(temporal, cluster)
    for one in handles:
        with pytest.raises(RPCError, match="not found"):
            await one.describe()
    ended = await temporal.get_workflow_handle(workflow_id).describe()
    assert ended.status is WorkflowExecutionStatus.TERMINATED


async def test_schedules_of_other_clusters_stay(temporal: Client, cluster: str) -> None:
    other = f"{cluster}-other"
    schedule_id = f"{ids.garbage_collection(other)}/leases"
    handle = await temporal.create_schedule(schedule_id, former_schedule(other, schedule_id))
    await remove_schedules(temporal, cluster)
    assert (await handle.describe()).id == schedule_id
    await remove_schedules(temporal, other)


def former_schedule(cluster: str, schedule_id: str) -> Schedule:
    """It starts runs of a type that this version does not have."""
    action = ScheduleActionStartWorkflow("GarbageCollection", id=schedule_id, task_queue=ids.task_queue(cluster))
    return Schedule(action=action, spec=ScheduleSpec())
