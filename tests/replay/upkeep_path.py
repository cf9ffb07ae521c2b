"""The path of upkeep: a run that collects something, and one whose task came to nothing."""

from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import BadInput
from tenure.model.garbage_collection import UpkeepAsked
from tests.support.fakes.worker import World
from workflows import ids
from workflows.garbage_collection import UpkeepWorkflow


async def upkeep_run(fake: World, skipping: WorkflowEnvironment) -> dict[str, WorkflowHandle[Any, Any]]:
    fake.inventory.lease("left")
    well = await _run(fake, "well")
    fake.inventory.faults["leases"] = [BadInput("no such namespace")]
    return {"": well, "failed": await _run(fake, "failed")}


async def _run(fake: World, name: str) -> WorkflowHandle[Any, Any]:
    handle = await fake.client.start_workflow(
        UpkeepWorkflow.run,
        UpkeepAsked(cluster=fake.cluster, task="leases"),
        id=ids.upkeep(fake.cluster, f"leases-{name}"),
        task_queue=ids.task_queue(fake.cluster),
    )
    await handle.result()
    return handle
