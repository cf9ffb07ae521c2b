"""The path of the queue consumer: a missing queue, a changed queue name, and an unhealthy instance."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.errors import NotFound
from tenure.model.interruption.messages import FailedCheck, StatusReport
from tenure.model.interruption.records import InterruptionState, QueueSetting
from tests.support.fakes.interruptions import utc_now
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import wait_until, wait_until_skipping_time
from workflows import ids
from workflows.interruption import InterruptionWorkflow


async def interruption_consumes_queue(fake: WorkerHarness) -> dict[str, WorkflowHandle[Any, Any]]:
    events = fake.interruptions
    events.queue.faults = {"receive": [NotFound("no queue one", code="QueueDoesNotExist")] * 2}
    handle = await fake.client.start_workflow(
        InterruptionWorkflow.run,
        InterruptionState(cluster=fake.cluster, queue="one"),
        id=ids.interruption(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )

    async def has_failed_twice() -> bool:
        return (await handle.query(InterruptionWorkflow.state)).messages.failed_attempts == 2

    async def reads_second_queue() -> bool:
        return "two" in events.queue.polled_queues and events.queue.is_empty

    async def has_open_interruption() -> bool:
        return len((await handle.query(InterruptionWorkflow.state)).open_interruptions) == 1

    async with fake.running_planner():
        await wait_until_skipping_time(fake, has_failed_twice)
        check = FailedCheck(kind="systemStatus", since=utc_now() - timedelta(minutes=5))
        events.statuses.reports = [StatusReport(instance_id="i-a", failed_checks=(check,))]
        await handle.signal(InterruptionWorkflow.set_queue, QueueSetting(queue="two"))
        events.queue.send("i-a")
        await wait_until(reads_second_queue)
        await handle.signal(InterruptionWorkflow.set_queue, QueueSetting(queue="two"))
        await wait_until_skipping_time(fake, has_open_interruption, seconds=5)
    return {"": handle}
