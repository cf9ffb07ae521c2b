"""Interruption: stores reports of the readers, and costs nothing while idle."""

from datetime import UTC, datetime, timedelta

from tenure.model.interruption.messages import InterruptionMessage, OpenInterruption
from tenure.model.interruption.records import (
    InterruptionState,
    MessageCounts,
    OpenInterruptions,
    QueueSetting,
    SourceReport,
    SourceState,
)
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import Interruption, start_interruption
from workflows.interruption import InterruptionWorkflow

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
MISSING = "QueueDoesNotExist: no queue demo"


async def query_state(handle: Interruption) -> InterruptionState:
    return await handle.query(InterruptionWorkflow.state)


async def query_metadata(handle: Interruption) -> str:
    return str(await handle.query("__temporal_workflow_metadata"))


async def report(handle: Interruption, fault: str, minutes: int) -> None:
    at = AT + timedelta(minutes=minutes)
    await handle.signal(InterruptionWorkflow.report_source, SourceReport(source="messages", fault=fault, at=at))


async def test_failing_source_keeps_the_start_of_its_failure_until_it_recovers(fake: WorkerHarness) -> None:
    handle = await start_interruption(fake)
    await report(handle, MISSING, 0)
    await report(handle, "AccessDenied: no", 5)
    last = AT + timedelta(minutes=5)
    failing = SourceState(failing_since=AT, fault="AccessDenied: no", fault_at=last)
    found = await query_state(handle)
    assert (found.messages, found.statuses) == (failing, SourceState())
    assert "**unreadable**" in await query_metadata(handle)
    await report(handle, "", 9)
    assert (await query_state(handle)).messages == failing.model_copy(update={"failing_since": None})


async def test_open_interruptions_are_stored_and_shown(fake: WorkerHarness) -> None:
    handle = await start_interruption(fake)
    message = InterruptionMessage(kind="systemStatus", id="1", source="status", at=AT, code="impaired")
    opened = (OpenInterruption(instance_id="i-a", message=message),)
    await handle.signal(InterruptionWorkflow.report_open_interruptions, OpenInterruptions(open_interruptions=opened))
    assert (await query_state(handle)).open_interruptions == opened
    assert "i-a: systemStatus impaired" in await query_metadata(handle)


async def test_message_counts_are_added(fake: WorkerHarness) -> None:
    handle = await start_interruption(fake)
    began = (await query_state(handle)).message_counts
    assert began is not None and began.counts == {}
    for counts in ({"received": 2, "foreign": 1}, {"received": 3}):
        await handle.signal(InterruptionWorkflow.add_message_counts, MessageCounts(since=AT, counts=counts))
    assert (await query_state(handle)).message_counts == MessageCounts(
        since=began.since, counts={"received": 5, "foreign": 1}
    )


async def test_changed_queue_setting_resets_the_state_of_the_source(fake: WorkerHarness) -> None:
    handle = await start_interruption(fake)
    await report(handle, MISSING, 0)
    await handle.signal(InterruptionWorkflow.set_queue, QueueSetting(queue="demo"))
    assert (await query_state(handle)).messages.fault == MISSING
    await handle.signal(InterruptionWorkflow.set_queue, QueueSetting(queue=""))
    assert (await query_state(handle)).messages == SourceState()
    assert "INTERRUPTION_QUEUE is not set" in await query_metadata(handle)


async def test_idle_interruption_adds_no_events(fake: WorkerHarness) -> None:
    handle = await start_interruption(fake)
    await query_state(handle)
    before = (await handle.describe()).history_length
    await fake.sleep(timedelta(days=1))
    assert (await handle.describe()).history_length == before
