"""The path of GarbageCollector: sweeps, a fault, a run on request, a paused task and continue-as-new."""

from functools import partial
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.errors import BadInput
from tenure.model.garbage_collection import TaskSelection
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_garbage_collector
from tests.support.workflows.eventually import has_continued_as_new, wait_until_skipping_time
from workflows.garbage_collection import GarbageCollectorWorkflow


async def garbage_collector_sweeps(fake: WorkerHarness) -> dict[str, WorkflowHandle[Any, Any]]:
    fake.inventory.lease("left")
    fake.inventory.faults["list_nodes"] = [BadInput("no such list")]
    first = await start_garbage_collector(fake)
    await first.execute_update("run_task", TaskSelection(task="tags"))
    await first.signal(GarbageCollectorWorkflow.pause_task, TaskSelection(task="leases"))
    await fake.sleep(minutes=4)
    await first.signal(GarbageCollectorWorkflow.resume_task, TaskSelection(task="leases"))
    await wait_until_skipping_time(fake, partial(has_continued_as_new, fake.client, first), minutes=4)
    second = fake.client.get_workflow_handle(first.id)
    await fake.sleep(minutes=4)
    return {"first": fake.client.get_workflow_handle(first.id, run_id=first.result_run_id), "second": second}
