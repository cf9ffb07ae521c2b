"""Interruption bursts: activities that wait for pods and instances do not delay other activities."""

from temporalio.api.enums.v1 import EventType

from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle
from tests.support.workflows.interruption_messages import ready_with_rules, send_message
from workflows import ids

SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED


async def task_queue_by_activity(handle: Handle) -> dict[str, str]:
    """Task queue by activity name."""
    history = await handle.fetch_history()
    found = [one.activity_task_scheduled_event_attributes for one in history.events if one.event_type == SCHEDULED]
    return {one.activity_type.name: one.task_queue.name for one in found}


async def test_drain_and_termination_activities_use_separate_queue(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake)
    await send_message(fake, handle, "spotInterruption")
    await handle.result()
    found = await task_queue_by_activity(handle)
    own = {name for name, queue in found.items() if queue == ids.drain_queue(fake.cluster)}
    assert own == {"drain_node", "publish_interruption_events", "terminate_instance"}
    assert {queue for name, queue in found.items() if name not in own} <= {
        ids.task_queue(fake.cluster),
        ids.launch_queue(fake.cluster),
    }
