"""A reset of the sticky queue, so that a workflow does not wait for a killed worker that had it in its cache."""

import uuid

from temporalio import workflow
from temporalio.api.enums.v1 import EventType, TaskQueueKind
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tenure.controller.temporal.client import reset_sticky_queue
from tests.support.product.shared_sandbox import SharedSandbox

SCHEDULED = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
STICKY, NORMAL = TaskQueueKind.TASK_QUEUE_KIND_STICKY, TaskQueueKind.TASK_QUEUE_KIND_NORMAL


@workflow.defn
class Counting:
    def __init__(self) -> None:
        self._count = 0

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._count < 0)

    @workflow.update
    def count(self) -> int:
        self._count += 1
        return self._count

    @workflow.signal
    def end(self) -> None:
        self._count = -1


async def test_next_task_after_a_reset_goes_to_the_normal_queue(shared_sandbox: SharedSandbox) -> None:
    client, name = await Client.connect(shared_sandbox.temporal_address), f"freeing-{uuid.uuid4().hex[:8]}"
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=name, workflows=[Counting], workflow_runner=runner):
        handle = await client.start_workflow(Counting.run, id=name, task_queue=name)
        await handle.execute_update(Counting.count)
    await handle.signal("unknown")
    assert await _last_kind(handle) == STICKY
    async with Worker(client, task_queue=name, workflows=[Counting], workflow_runner=runner):
        await handle.execute_update(Counting.count)
    await reset_sticky_queue(client, name)
    await handle.signal(Counting.end)
    assert await _last_kind(handle) == NORMAL
    async with Worker(client, task_queue=name, workflows=[Counting], workflow_runner=runner):
        await handle.result()


async def test_reset_of_a_missing_workflow_succeeds(shared_sandbox: SharedSandbox) -> None:
    client = await Client.connect(shared_sandbox.temporal_address)
    await reset_sticky_queue(client, f"nobody-{uuid.uuid4().hex[:8]}")


async def _last_kind(handle: WorkflowHandle[Counting, None]) -> int:
    history = await handle.fetch_history()
    found = [one for one in history.events if one.event_type == SCHEDULED]
    return found[-1].workflow_task_scheduled_event_attributes.task_queue.kind
