"""Instance status is read every minute; new and ended interruptions are signaled, and open ones are kept."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from activities.interruption.instance_status import InstanceStatusReader, OpenMessages
from tenure.model.errors import Forbidden
from tenure.model.interruption.messages import FailedCheck, InterruptionMessage, OpenInterruption, StatusReport
from tests.support.fakes.interruptions import FakeInterruptions

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class StatusReaderHarness(FakeInterruptions):
    """A clock that sleeping advances, and EC2 status reports that change at given minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.stops_at = NOW
        self.reported: list[OpenMessages] = []
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
        if self.now > self.stops_at:
            raise asyncio.CancelledError
        minute = round((self.now - NOW).total_seconds() / 60)
        self.statuses.reports = self.script.get(minute, self.statuses.reports)

    async def read(self, *open_messages: OpenInterruption, minutes: int = 20, accepted: bool = True) -> OpenMessages:
        """Read the status for this time, each minute. Returns the last open messages that were reported."""
        self.reported, self.stops_at = [open_messages], self.now + timedelta(minutes=minutes)

        async def report(found: OpenMessages) -> bool:
            self.reported.append(found)
            return accepted

        with pytest.raises(asyncio.CancelledError):
            await self.reading.run(open_messages, report)
        return self.reported[-1]


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
    opened = await harness.read(minutes=0)
    assert harness.nodes.notifications_for("i-a") == ["systemStatus announced"]
    assert harness.nodes.notifications_for("i-b") == ["scheduledChange announced"]
    assert [one.instance_id for one in opened] == ["i-a", "i-b"]
    counts = {key: n for key, n in harness.metrics.counts.items() if key.startswith("unhealthy")}
    assert counts == {"unhealthy system_status": 1, "unhealthy event_status": 1}


async def test_unchanged_status_is_signaled_and_reported_once(harness: StatusReaderHarness) -> None:
    harness.statuses.reports = [failing_status("i-a"), event_status("i-b")]
    await harness.read(minutes=20)
    assert harness.statuses.reads == 21 and len(harness.reported) == 2
    assert len(harness.nodes.notified) == 2
    assert harness.metrics.counts["unhealthy system_status"] == 1


async def test_recovered_instance_is_signaled_as_over(harness: StatusReaderHarness) -> None:
    harness.statuses.reports = [failing_status("i-a")]
    assert await harness.read(minutes=6)
    harness.statuses.reports = []
    assert await harness.read(*harness.reported[-1], minutes=0) == ()
    assert harness.nodes.notifications_for("i-a") == ["systemStatus announced", "systemStatus over"]


async def test_successor_signals_end_of_inherited_interruption(harness: StatusReaderHarness) -> None:
    open_message = OpenInterruption(
        instance_id="i-a", message=InterruptionMessage(kind="instanceStatus", id="then", source="status", at=NOW)
    )
    assert await harness.read(open_message, minutes=0) == ()
    assert harness.nodes.notifications_for("i-a") == ["instanceStatus over"]


async def test_check_of_unknown_age_counts_after_two_minutes(harness: StatusReaderHarness) -> None:
    harness.statuses.reports = [failing_status("i-a", None)]
    assert await harness.read(minutes=1) == ()
    assert harness.nodes.notifications_for("i-a") == []
    await harness.read(minutes=1)
    assert harness.nodes.notifications_for("i-a") == ["systemStatus announced"]


async def test_failed_signal_is_repeated_in_next_minute(harness: StatusReaderHarness) -> None:
    harness.nodes.outcomes = {"i-a": ["later", "not yet"]}
    harness.statuses.reports = [failing_status("i-a")]
    assert await harness.read(minutes=1) == ()
    assert len(await harness.read(minutes=1)) == 1


async def test_failed_signal_does_not_affect_other_nodes(harness: StatusReaderHarness) -> None:
    harness.nodes.failing_instances = {"i-a"}
    harness.statuses.reports = [failing_status("i-a"), failing_status("i-b")]
    assert [one.instance_id for one in await harness.read(minutes=0)] == ["i-b"]


async def test_deleted_node_is_dropped(harness: StatusReaderHarness) -> None:
    harness.statuses.reports = [failing_status("i-a")]
    await harness.read(minutes=0)
    harness.nodes.outcomes = {"i-a": ["over"]}
    harness.statuses.reports = []
    assert await harness.read(*harness.reported[-1], minutes=0) == ()


async def test_report_is_repeated_until_it_is_accepted(harness: StatusReaderHarness) -> None:
    harness.statuses.reports = [failing_status("i-a")]
    await harness.read(minutes=2, accepted=False)
    assert len(harness.reported) == 4 and harness.reported[1] == harness.reported[3]


async def test_fault_ends_the_reading(harness: StatusReaderHarness) -> None:
    harness.statuses.faults = {"read": [Forbidden("not allowed", code="UnauthorizedOperation")]}
    with pytest.raises(Forbidden):
        await harness.read()
