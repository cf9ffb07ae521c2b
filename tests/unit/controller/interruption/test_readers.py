"""The readers report changed results once, retry with backoff, and continue while Temporal rejects signals."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from temporalio.common import MetricMeter
from temporalio.service import RPCStatusCode

from activities.interruption.instance_status import InstanceStatusReader
from activities.interruption.queue_consumer import QueueConsumer
from activities.nodeclaim.eviction import EarlyEvictions
from tenure.controller.interruption.readers import MAX_PAUSE_SECONDS, RECOVERED_AFTER_SECONDS, InterruptionReaders
from tenure.model.errors import Forbidden, NotFound
from tenure.model.interruption.messages import FailedCheck, InterruptionMessage, OpenInterruption, StatusReport
from tenure.model.interruption.records import InterruptionState, MessageCounts, OpenInterruptions, SourceReport
from tests.support.fakes.interruptions import FakeInterruptions
from tests.support.fakes.ports import FakePorts
from tests.support.product.eventually import wait_until
from tests.unit.controller.fake_temporal import FakeTemporal

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WORKFLOW = "demo/interruption"
SPEEDUP = 2000.0
MISSING = NotFound("no queue demo", code="QueueDoesNotExist")
OPEN = OpenInterruption(
    instance_id="i-b", message=InterruptionMessage(kind="instanceStatus", id="1", source="status", at=NOW)
)


class ReadersHarness(FakeInterruptions):
    """Readers over fakes, whose pauses are shorter than the real ones by SPEEDUP."""

    def __init__(self) -> None:
        super().__init__()
        self.temporal, self.pauses = FakeTemporal(), list[float]()
        self.temporal.query_results[WORKFLOW] = InterruptionState(cluster="demo", open_interruptions=(OPEN,))
        evictions = EarlyEvictions(FakePorts().build_ports(), MetricMeter.noop)
        self.readers = InterruptionReaders(
            self.temporal.client,
            "demo",
            make_consumer=lambda: QueueConsumer(
                "demo",
                queue=self.queue,
                nodes=self.nodes,
                metrics=self.metrics,
                early_evictions=evictions,
                now=lambda: NOW,
            ),
            statuses=InstanceStatusReader(
                statuses=self.statuses, nodes=self.nodes, metrics=self.metrics, now=lambda: NOW, sleep=self.sleep
            ),
            metrics=self.metrics,
            now=lambda: NOW,
            sleep=self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(seconds / SPEEDUP)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.readers.run())
        try:
            yield
        finally:
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def reports(self, source: str) -> list[str]:
        sent = self.temporal.arguments_to(WORKFLOW)
        return [one.fault for one in sent if isinstance(one, SourceReport) and one.source == source]

    def counts(self) -> list[dict[str, int]]:
        return [one.counts for one in self.temporal.arguments_to(WORKFLOW) if isinstance(one, MessageCounts)]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async def assert_condition() -> None:
            assert condition()

        await wait_until(assert_condition, seconds=20, poll_interval=0.005)


@pytest.fixture
def harness() -> ReadersHarness:
    return ReadersHarness()


async def test_message_reaches_its_node_and_counts_are_reported(harness: ReadersHarness) -> None:
    async with harness.reading():
        harness.queue.send("i-a")
        harness.queue.send("x-other")
        await harness.wait_until(lambda: bool(harness.counts()) and harness.queue.is_empty)
        await harness.wait_until(lambda: sum(one.get("deleted", 0) for one in harness.counts()) == 2)
    assert harness.nodes.notifications_for("i-a") == ["spotInterruption announced"]
    totals = {key: sum(one.get(key, 0) for one in harness.counts()) for key in ("received", "deleted", "foreign")}
    assert totals == {"received": 2, "deleted": 2, "foreign": 1}


async def test_counts_are_reported_at_the_end(harness: ReadersHarness) -> None:
    async with harness.reading():
        harness.queue.send("i-a")
        await harness.wait_until(lambda: harness.metrics.message_counts["deleted"] == 1)
    assert harness.counts()[-1]["deleted"] == 1


async def test_open_messages_are_inherited_and_reported(harness: ReadersHarness) -> None:
    check = FailedCheck(kind="systemStatus", since=NOW)
    harness.statuses.reports = [StatusReport(instance_id="i-a", failed_checks=(check,))]

    def opened() -> list[str]:
        sent = [one for one in harness.temporal.arguments_to(WORKFLOW) if isinstance(one, OpenInterruptions)]
        return [one.instance_id for one in sent[-1].open_interruptions] if sent else []

    async with harness.reading():
        await harness.wait_until(lambda: harness.nodes.notifications_for("i-b") == ["instanceStatus over"])
        await harness.wait_until(lambda: opened() == [] and harness.statuses.reads > 3)


async def test_unreadable_queue_is_reported_once_until_it_recovers(harness: ReadersHarness) -> None:
    """The other source is still read."""
    harness.queue.faults = {"receive": [MISSING] * 4}
    async with harness.reading():
        await harness.wait_until(lambda: harness.reports("messages") == ["QueueDoesNotExist: no queue demo", ""])
        assert harness.statuses.reads
        harness.queue.send("i-a")
        await harness.wait_until(lambda: harness.queue.is_empty)
    assert harness.reports("messages") == ["QueueDoesNotExist: no queue demo", ""]


async def test_source_that_cannot_be_parsed_does_not_end_the_watch(
    harness: ReadersHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise KeyError("InstanceId")

    monkeypatch.setattr(harness.statuses, "read", fail)
    async with harness.reading():
        await harness.wait_until(lambda: harness.reports("statuses") == ["KeyError: 'InstanceId'"])
        harness.queue.send("i-a")
        await harness.wait_until(lambda: harness.queue.is_empty)


async def test_pause_doubles_up_to_a_minute(harness: ReadersHarness) -> None:
    harness.queue.faults = {"receive": [Forbidden("not allowed")] * 8}
    async with harness.reading():
        await harness.wait_until(lambda: not harness.queue.faults["receive"])
        await harness.wait_until(lambda: harness.pauses.count(MAX_PAUSE_SECONDS) >= 2)
    assert [one for one in harness.pauses if one < RECOVERED_AFTER_SECONDS] == [1, 2, 4, 8, 16, 32]


async def test_messages_are_read_while_temporal_rejects_signals(harness: ReadersHarness) -> None:
    harness.temporal.failures = [RPCStatusCode.UNAVAILABLE] * 5
    async with harness.reading():
        harness.queue.send("i-a")
        await harness.wait_until(lambda: harness.queue.is_empty and not harness.temporal.failures)
        await harness.wait_until(lambda: sum(one.get("deleted", 0) for one in harness.counts()) == 1)
    assert harness.nodes.notifications_for("i-a") == ["spotInterruption announced"]


async def test_without_a_response_of_the_workflow_only_the_queue_is_read(harness: ReadersHarness) -> None:
    """The open messages must be known before the first status."""
    state = harness.temporal.query_results.pop(WORKFLOW)
    async with harness.reading():
        harness.queue.send("i-a")
        await harness.wait_until(lambda: harness.queue.is_empty)
        assert not harness.statuses.reads
        harness.temporal.query_results[WORKFLOW] = state
        await harness.wait_until(lambda: harness.statuses.reads > 0)
