"""Instance status is read every minute; new and ended interruptions are signaled, and open ones are kept."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.interruption.instance_status import InstanceStatusReader
from tenure.model.errors import Forbidden, NotFound, TryLater
from tenure.model.interruption.messages import FailedCheck, InterruptionMessage, OpenInterruption, StatusReport
from tenure.model.interruption.records import InstanceStatusRequest, QueueSetting, SourceReadResult
from tests.support.fakes.interruptions import FakeInterruptions
from tests.unit.activities.builders import run_activity

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class StatusReaderHarness(FakeInterruptions):
    """A clock that sleeping advances, and EC2 status reports that change at given minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.script: dict[int, list[StatusReport]] = {}
        """Reports by minute since the start."""
        self.reading = self.another_reader()

    def another_reader(self) -> InstanceStatusReader:
        """The reader of another process."""
        return InstanceStatusReader(
            statuses=self.statuses, nodes=self.nodes, metrics=self.metrics, now=lambda: self.now, sleep=self.sleep
        )

    async def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        minute = round((self.now - NOW).total_seconds() / 60)
        if minute > 20:
            raise asyncio.CancelledError
        self.statuses.reports = self.script.get(minute, self.statuses.reports)

    async def read(self, **fields: Any) -> SourceReadResult:
        return await self.reading.run(InstanceStatusRequest.model_validate(fields))


@pytest.fixture
def harness() -> StatusReaderHarness:
    return StatusReaderHarness()


def failing_status(instance: str, seconds: float | None = 300) -> StatusReport:
    since = None if seconds is None else NOW - timedelta(seconds=seconds)
    return StatusReport(instance_id=instance, failed_checks=(FailedCheck(kind="systemStatus", since=since),))


def event_status(instance: str, status: str = "announced") -> StatusReport:
    fields = {"kind": "scheduledChange", "id": "e-1", "source": "status", "at": NOW, "status": status}
    return StatusReport(instance_id=instance, events=(InterruptionMessage.model_validate(fields),))


async def test_new_interruptions_are_signaled_and_kept_open(harness: StatusReaderHarness) -> None:
    harness.statuses.reports = [failing_status("i-a"), event_status("i-b"), failing_status("x-1")]
    ended = await harness.read()
    assert harness.nodes.notifications_for("i-a") == ["systemStatus announced"]
    assert harness.nodes.notifications_for("i-b") == ["scheduledChange announced"]
    assert [one.instance_id for one in ended.open_interruptions] == ["i-a", "i-b"]
    counts = {key: n for key, n in harness.metrics.counts.items() if key.startswith("unhealthy")}
    assert counts == {"unhealthy system_status": 1, "unhealthy event_status": 1}


async def test_unchanged_status_is_signaled_once(harness: StatusReaderHarness) -> None:
    """The activity also does not return, so that the history of the waiting workflow does not grow."""
    harness.statuses.reports = [failing_status("i-a"), event_status("i-b")]
    ended = await harness.read()
    with pytest.raises(asyncio.CancelledError):
        await harness.read(open_interruptions=ended.open_interruptions, last=ended.last)
    assert harness.statuses.reads == 21
    assert len(harness.nodes.notified) == 2
    assert harness.metrics.counts["unhealthy system_status"] == 1


async def test_recovered_instance_is_signaled_as_over(harness: StatusReaderHarness) -> None:
    harness.statuses.reports = [failing_status("i-a")]
    ended = await harness.read()
    harness.script = {7: []}
    ended = await harness.read(open_interruptions=ended.open_interruptions, last=ended.last)
    assert ended.open_interruptions == ()
    assert harness.nodes.notifications_for("i-a") == ["systemStatus announced", "systemStatus over"]
    assert ended.last == NOW + timedelta(minutes=7)


async def test_status_is_read_once_a_minute_across_readers(harness: StatusReaderHarness) -> None:
    harness.script = {1: [failing_status("i-a")]}
    ended = await harness.read(last=NOW - timedelta(seconds=10))
    assert ended.last == NOW + timedelta(seconds=50)
    assert harness.statuses.reads == 1


async def test_successor_signals_end_of_inherited_interruption(harness: StatusReaderHarness) -> None:
    open_message = OpenInterruption(
        instance_id="i-a", message=InterruptionMessage(kind="instanceStatus", id="then", source="status", at=NOW)
    )
    assert (await harness.read(open_interruptions=(open_message,))).open_interruptions == ()
    assert harness.nodes.notifications_for("i-a") == ["instanceStatus over"]


async def test_check_of_unknown_age_counts_after_two_minutes(harness: StatusReaderHarness) -> None:
    harness.statuses.reports = [failing_status("i-a", None)]
    ended = await harness.read()
    assert ended.last == NOW + timedelta(minutes=2)
    assert harness.nodes.notifications_for("i-a") == ["systemStatus announced"]


async def test_failed_signal_is_repeated_in_next_minute(harness: StatusReaderHarness) -> None:
    harness.nodes.outcomes = {"i-a": ["later", "not yet"]}
    harness.statuses.reports = [failing_status("i-a")]
    ended = await harness.read()
    assert ended.last == NOW + timedelta(minutes=2)
    assert len(ended.open_interruptions) == 1


async def test_failed_signal_does_not_affect_other_nodes(harness: StatusReaderHarness) -> None:
    harness.nodes.failing_instances = {"i-a"}
    harness.statuses.reports = [failing_status("i-a"), failing_status("i-b")]
    assert [one.instance_id for one in (await harness.read()).open_interruptions] == ["i-b"]


async def test_deleted_node_is_dropped(harness: StatusReaderHarness) -> None:
    harness.statuses.reports = [failing_status("i-a")]
    ended = await harness.read()
    harness.nodes.outcomes = {"i-a": ["over"]}
    harness.script = {1: []}
    assert (await harness.read(open_interruptions=ended.open_interruptions, last=ended.last)).open_interruptions == ()


async def test_fault_is_returned_and_open_interruptions_are_kept(harness: StatusReaderHarness) -> None:
    harness.statuses.faults = {"read": [Forbidden("not allowed", code="UnauthorizedOperation")]}
    open_message = OpenInterruption(
        instance_id="i-a", message=InterruptionMessage(kind="instanceStatus", id="1", source="status", at=NOW)
    )
    request = InstanceStatusRequest(open_interruptions=(open_message,), last=None)
    ended = await run_activity(harness.activities().read_instance_status, request)
    assert ended == SourceReadResult(fault="UnauthorizedOperation: not allowed", open_interruptions=(open_message,))


async def test_missing_queue_is_returned_as_fault(harness: StatusReaderHarness) -> None:
    harness.queue.faults = {"receive": [NotFound("no such queue", code="QueueDoesNotExist")]}
    ended = await run_activity(harness.activities().consume_queue, QueueSetting(queue="demo"))
    assert ended.fault == "QueueDoesNotExist: no such queue"


async def test_stopped_reader_fails_with_retryable_error(harness: StatusReaderHarness) -> None:
    """Temporal retries the activity, which adds no events to the history."""
    harness.queue.faults = {"receive": [TryLater("503")] * 3}
    environment = ActivityEnvironment()
    running = asyncio.ensure_future(environment.run(harness.activities().consume_queue, QueueSetting(queue="demo")))
    await asyncio.sleep(0.05)
    environment.worker_shutdown()
    with pytest.raises(Exception, match="worker shutdown"):
        await asyncio.wait_for(running, 60)
    assert harness.queue.polling == 0
