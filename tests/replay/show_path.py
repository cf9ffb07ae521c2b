"""The path of a question: asked, answered, over."""

from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.model.operator_requests import ShowAsked
from tests.support.fakes.worker import World
from workflows import ids
from workflows.cluster_watch import ShowWorkflow


async def show_question(fake: World, skipping: WorkflowEnvironment) -> dict[str, WorkflowHandle[Any, Any]]:
    handle = await fake.client.start_workflow(
        ShowWorkflow.run,
        ShowAsked(cluster=fake.cluster, name="node-1"),
        id=ids.show(fake.cluster, "1"),
        task_queue=ids.task_queue(fake.cluster),
    )
    async with fake.planning():
        assert (await handle.result()).said == ("asked for node-1",)
    return {"": handle}
