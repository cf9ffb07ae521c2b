"""Garbage collection: one run performs one task, and its result contains any fault."""

from temporalio.client import WorkflowHandle

from tenure.model.errors import Forbidden
from tenure.model.garbage_collection import GarbageCollectionRequest, GarbageCollectionResult
from tests.support.fakes.worker import WorkerHarness
from workflows import ids
from workflows.garbage_collection import TASKS, GarbageCollectionWorkflow

MAX_EVENTS = 11
"""Events of a run without faults: its start, one activity, its end, and the workflow tasks between them."""


async def start_garbage_collection(
    fake: WorkerHarness, task: str
) -> WorkflowHandle[GarbageCollectionWorkflow, GarbageCollectionResult]:
    return await fake.client.start_workflow(
        GarbageCollectionWorkflow.run,
        GarbageCollectionRequest(cluster=fake.cluster, task=task),
        id=ids.garbage_collection(fake.cluster, task),
        task_queue=ids.task_queue(fake.cluster),
    )


async def test_each_task_completes_without_orphans_and_adds_few_events(fake: WorkerHarness) -> None:
    for task in TASKS:
        run = await start_garbage_collection(fake, task)
        done = await run.result()
        assert (done.task, done.collected, done.failed, done.fault) == (task, 0, 0, "")
        assert len((await run.fetch_history()).events) <= MAX_EVENTS, task


async def test_failed_task_ends_with_reason(fake: WorkerHarness) -> None:
    fake.inventory.faults["list_leases"] = [Forbidden("leases is forbidden")] * 100
    done = await (await start_garbage_collection(fake, "leases")).result()
    assert "leases is forbidden" in done.fault
    assert done.collected == 0


async def test_unknown_task_ends_at_once(fake: WorkerHarness) -> None:
    """An older worker may get the Schedule of a newer one."""
    done = await (await start_garbage_collection(fake, "moon-phases")).result()
    assert "no such task" in done.fault
