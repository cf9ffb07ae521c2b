"""Paths of garbage collection: a run that collects an object, and a run that fails."""

from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.errors import BadInput
from tenure.model.garbage_collection import GarbageCollectionRequest
from tests.support.fakes.worker import WorkerHarness
from workflows import ids
from workflows.garbage_collection import GarbageCollectionWorkflow


async def garbage_collection_run(fake: WorkerHarness) -> dict[str, WorkflowHandle[Any, Any]]:
    fake.inventory.lease("left")
    completed = await _run_collection(fake, "well")
    fake.inventory.faults["list_leases"] = [BadInput("no such namespace")]
    return {"": completed, "failed": await _run_collection(fake, "failed")}


async def _run_collection(fake: WorkerHarness, name: str) -> WorkflowHandle[Any, Any]:
    handle = await fake.client.start_workflow(
        GarbageCollectionWorkflow.run,
        GarbageCollectionRequest(cluster=fake.cluster, task="leases"),
        id=ids.garbage_collection(fake.cluster, f"leases-{name}"),
        task_queue=ids.task_queue(fake.cluster),
    )
    await handle.result()
    return handle
