"""Message counts are part of the heartbeat, and a new worker continues from them."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.interruption.metrics import QueueCounter
from tenure.model.interruption.records import MessageCounts, QueueSetting
from tests.support.fakes.interruptions import FakeInterruptions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_counts_start_at_zero_for_new_counter() -> None:
    counted = Counter(received=100)
    counting = QueueCounter(counted, (), NOW)
    counted.update({"received": 3, "foreign": 1})
    assert counting.current_stats() == MessageCounts(since=NOW, counts={"received": 3, "foreign": 1})


def test_new_worker_continues_counts() -> None:
    before = MessageCounts(since=NOW, counts={"received": 7, "malformed": 2}).model_dump(mode="json")
    counted = Counter(received=100)
    counting = QueueCounter(counted, (before,), NOW + timedelta(hours=1))
    counted.update({"received": 1, "foreign": 1})
    assert counting.current_stats() == MessageCounts(since=NOW, counts={"received": 8, "malformed": 2, "foreign": 1})


def test_unknown_heartbeat_details_start_new_counts() -> None:
    assert QueueCounter(Counter(), ("beat",), NOW).current_stats() == MessageCounts(since=NOW)


async def test_queue_consumer_sends_counts_with_each_heartbeat(monkeypatch: Any) -> None:
    monkeypatch.setattr("activities.runtime.HEARTBEAT_EVERY_SECONDS", 0.01)
    fake, environment = FakeInterruptions(), ActivityEnvironment()
    beats: list[MessageCounts] = []
    environment.on_heartbeat = lambda *details: beats.append(details[0])
    reading = asyncio.ensure_future(environment.run(fake.activities().consume_queue, QueueSetting(queue="demo")))
    fake.queue.send("i-1")
    fake.queue.send("x-nobody")
    while not beats or beats[-1].counts.get("deleted", 0) < 2:
        assert not reading.done()
        await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert beats[-1].counts == {"received": 2, "deleted": 2, "foreign": 1}
