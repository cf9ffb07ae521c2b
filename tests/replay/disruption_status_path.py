"""The path of a disruption preview."""

from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.operator_requests import DisruptionPreviewRequest
from tests.support.fakes.worker import WorkerHarness
from workflows import ids
from workflows.cluster_watch import DisruptionPreviewWorkflow


async def disruption_preview(fake: WorkerHarness) -> dict[str, WorkflowHandle[Any, Any]]:
    handle = await fake.client.start_workflow(
        DisruptionPreviewWorkflow.run,
        DisruptionPreviewRequest(cluster=fake.cluster, name="node-1"),
        id=ids.disruption_preview(fake.cluster, "1"),
        task_queue=ids.task_queue(fake.cluster),
    )
    async with fake.running_planner():
        assert (await handle.result()).messages == ("asked for node-1",)
    return {"": handle}
