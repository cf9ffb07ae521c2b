"""The path of the Interruption workflow: a missing queue, a changed queue name, and an unhealthy instance."""

from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.interruption.messages import InterruptionMessage, OpenInterruption
from tenure.model.interruption.records import (
    MessageCounts,
    OpenInterruptions,
    QueueSetting,
    SourceReport,
)
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_interruption
from workflows.interruption import InterruptionWorkflow


async def interruption_sources_reported(fake: WorkerHarness) -> dict[str, WorkflowHandle[Any, Any]]:
    handle = await start_interruption(fake, queue="one")
    now, kind = await fake.now(), InterruptionWorkflow
    message = InterruptionMessage(kind="systemStatus", id="1", source="status", at=now, code="impaired")
    opened = OpenInterruptions(open_interruptions=(OpenInterruption(instance_id="i-a", message=message),))
    await handle.signal(kind.report_source, SourceReport(source="messages", fault="QueueDoesNotExist", at=now))
    await handle.query(kind.state)
    await handle.signal(kind.set_queue, QueueSetting(queue="two"))
    await handle.signal(kind.report_source, SourceReport(source="messages", at=now))
    await handle.query(kind.state)
    await handle.signal(kind.report_open_interruptions, opened)
    await handle.signal(kind.add_message_counts, MessageCounts(since=now, counts={"received": 1}))
    await handle.query(kind.state)
    return {"": handle}
