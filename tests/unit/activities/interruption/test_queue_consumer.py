"""The queue is consumed: nodes get signals, and messages are deleted afterwards, with faults and under load."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.interruption import queue_consumer
from activities.interruption.queue_consumer import MAX_POLLS, QueueConsumer
from activities.nodeclaim.eviction import EarlyEvictions
from activities.ports.interruption import InterruptedNode
from tenure.model.errors import Forbidden, NotFound, TryLater
from tenure.model.interruption.records import ParsedEvent
from tenure.model.provider_results import DrainPod, Eviction
from tests.support.fakes.event_loop import run_pending_tasks
from tests.support.fakes.interruptions import FakeInterruptions, rebalance_recommendation, scheduled_change
from tests.support.fakes.ports import FakePorts

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class ConsumerHarness(FakeInterruptions):
    def __init__(self) -> None:
        super().__init__()
        self.now = datetime.now(UTC)
        self.pauses: list[float] = []
        fakes = FakePorts()
        self.machines, self.pods = fakes.nodes, fakes.pods
        self.reading = QueueConsumer(
            "demo",
            queue=self.queue,
            nodes=self.nodes,
            early_evictions=EarlyEvictions(fakes.build_ports()),
            metrics=self.metrics,
            now=lambda: self.now,
            sleep=self.sleep,
        )

    def interrupt_node(self, number: int) -> None:
        """Interrupt the instance of a node with one pod."""
        node = f"node-{number}"
        self.machines.join(node, f"aws:///us-west-2a/i-{number}")
        self.pods.add(node, f"pod-{number}")
        self.nodes.early_evictions[f"i-{number}"] = InterruptedNode(
            node=node, uid=f"uid-{node}", tainted=False, pods=tuple(self.pods.by_node[node])
        )
        self.queue.send(f"i-{number}")

    async def sleep(self, seconds: float) -> None:
        if seconds != queue_consumer.CHECK_EVERY_SECONDS:
            self.pauses.append(seconds)
        await asyncio.sleep(0)

    @asynccontextmanager
    async def consuming(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.ensure_future(ActivityEnvironment().run(self.reading.run))
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(2000):
            if condition():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("the condition never became true")

    async def wait_until_empty(self) -> None:
        await self.wait_until(lambda: self.queue.is_empty)


@pytest.fixture
def harness() -> ConsumerHarness:
    return ConsumerHarness()


async def test_node_is_signaled_and_message_deleted(harness: ConsumerHarness) -> None:
    name = harness.queue.send("i-a")
    async with harness.consuming():
        await harness.wait_until_empty()
    assert harness.nodes.notifications_for("i-a") == ["spotInterruption announced"]
    assert harness.queue.deleted == [name]
    counts = harness.metrics.counts
    assert (counts["received spot_interrupted"], counts["deleted"]) == (1, 1)
    assert counts["read queue"] >= 1


async def test_consumer_killed_before_deletion_loses_nothing(harness: ConsumerHarness) -> None:
    harness.nodes.gate = asyncio.Event()
    harness.queue.send("i-a")
    async with harness.consuming():
        await harness.wait_until(lambda: harness.nodes.in_flight == 1)
    assert harness.queue.deleted == []
    harness.nodes.gate.set()
    harness.queue.make_visible()
    async with harness.consuming():
        await harness.wait_until_empty()
    assert harness.nodes.notifications_for("i-a") == ["spotInterruption announced"]


async def test_messages_of_one_instance_are_signaled_together(harness: ConsumerHarness) -> None:
    for _ in range(4):
        harness.queue.send("i-a", message=rebalance_recommendation(NOW))
    harness.queue.send("i-a")
    async with harness.consuming():
        await harness.wait_until_empty()
    assert harness.nodes.notifications_for("i-a") == ["rebalanceRecommendation announced", "spotInterruption announced"]
    assert harness.nodes.max_in_flight == 2


async def test_dropped_messages_are_deleted_and_counted(harness: ConsumerHarness) -> None:
    for dropped in ("malformed", "unknown", "unwanted"):
        harness.queue.send_event(ParsedEvent.model_validate({"at": NOW, "dropped": dropped, "why": "some reason"}))
    harness.queue.send("x-1")
    harness.queue.send("i-a")
    async with harness.consuming():
        await harness.wait_until_empty()
        harness.queue.send("i-a")
        await harness.wait_until_empty()
    harness.nodes.outcomes = {"i-over": ["over"]}
    harness.queue.send("i-over")
    async with harness.consuming():
        await harness.wait_until_empty()
    counts = harness.metrics.counts
    dropped_counts = {key.removeprefix("dropped "): n for key, n in counts.items() if key.startswith("dropped")}
    assert dropped_counts == dict.fromkeys(("malformed", "unknown", "unwanted", "foreign", "repeated", "over"), 1)
    assert (counts["received no_op"], counts["deleted"]) == (3, 7)


async def test_message_about_two_instances_is_kept_until_both_are_signaled(harness: ConsumerHarness) -> None:
    harness.nodes.outcomes = {"i-b": ["later"]}
    name = harness.queue.send("i-a", "x-1", "i-b")
    async with harness.consuming():
        await harness.wait_until(lambda: bool(harness.nodes.notifications_for("i-a")))
        await asyncio.sleep(0.01)
        assert harness.queue.deleted == []
        harness.queue.make_visible()
        await harness.wait_until_empty()
    assert (harness.nodes.notifications_for("i-a"), harness.nodes.notifications_for("i-b")) == (
        ["spotInterruption announced"],
    ) * 2
    assert harness.queue.deleted == [name]
    assert "dropped foreign" not in harness.metrics.counts


async def test_unknown_instance_is_retried_for_a_minute(harness: ConsumerHarness) -> None:
    harness.nodes.outcomes = {"i-new": ["not yet"] * 2, "x-1": ["not yet"] * 3}
    for instance in ("i-new", "x-1"):
        harness.queue.send(instance, first_received=harness.now)
    async with harness.consuming():
        await harness.wait_until(lambda: len(harness.queue.hidden) == 2)
        await run_pending_tasks()
        harness.now += timedelta(seconds=40)
        harness.queue.make_visible()
        await harness.wait_until(lambda: len(harness.queue.hidden) == 2)
        await run_pending_tasks()
        harness.now += timedelta(seconds=21)
        harness.queue.make_visible()
        await harness.wait_until_empty()
    assert harness.nodes.notifications_for("i-new") == ["spotInterruption announced"]
    assert harness.metrics.counts["dropped foreign"] == 1


async def test_old_message_is_delivered_once_node_has_a_workflow(
    harness: ConsumerHarness,
) -> None:
    """After an outage or a loss of Temporal's store, the first delivery may be days ago."""
    harness.nodes.outcomes = {"i-a": ["no workflow"] * 3}
    name = harness.queue.send("i-a", first_received=harness.now - timedelta(days=3))
    harness.queue.send("i-b")
    async with harness.consuming():
        for _ in range(3):
            await harness.wait_until(lambda: "r-m1" in harness.queue.hidden)
            await run_pending_tasks()
            assert name not in harness.queue.deleted
            harness.queue.make_visible()
        await harness.wait_until_empty()
    assert (
        harness.nodes.notifications_for("i-a")
        == harness.nodes.notifications_for("i-b")
        == ["spotInterruption announced"]
    )
    assert "dropped foreign" not in harness.metrics.counts
    assert harness.pauses == [], "other nodes get signals, so polling continues"


async def test_failing_message_does_not_block_others(harness: ConsumerHarness) -> None:
    harness.nodes.failing_instances = {"i-bad"}
    bad = harness.queue.send("i-bad")
    harness.queue.send("i-a")
    async with harness.consuming():
        await harness.wait_until(lambda: bool(harness.nodes.notifications_for("i-a")))
        harness.queue.make_visible()
        harness.queue.send("i-b")
        await harness.wait_until(lambda: bool(harness.nodes.notifications_for("i-b")))
    assert bad not in harness.queue.deleted
    assert harness.pauses == []


async def test_message_failing_for_half_an_hour_is_deleted_and_counted(harness: ConsumerHarness) -> None:
    harness.nodes.failing_instances = {"i-bad"}
    harness.queue.send("i-bad")
    async with harness.consuming():
        await harness.wait_until(lambda: bool(harness.queue.hidden))
        await run_pending_tasks()
        assert "dropped failed" not in harness.metrics.counts
        harness.now += queue_consumer.FAILED_MESSAGE_RETENTION + timedelta(minutes=1)
        harness.queue.make_visible()
        await harness.wait_until_empty()
    assert harness.metrics.counts["dropped failed"] == 1


async def test_full_batches_start_more_polls(harness: ConsumerHarness) -> None:
    for number in range(500):
        harness.queue.send(f"i-{number}")
    async with harness.consuming():
        await harness.wait_until_empty()
        assert len({instance for instance, _ in harness.nodes.notified}) == 500
        await harness.wait_until(lambda: harness.queue.polling == 1)
        polled = len(harness.queue.polled_queues)
        harness.queue.max_concurrent_polls = 0
        await harness.wait_until(lambda: len(harness.queue.polled_queues) > polled + 2)
    assert harness.queue.max_concurrent_polls == 1


async def test_pods_are_evicted_before_workflow_is_signaled(
    harness: ConsumerHarness,
) -> None:
    harness.nodes.gate = asyncio.Event()
    harness.interrupt_node(1)
    async with harness.consuming():
        await harness.wait_until(lambda: harness.nodes.in_flight == 1)
        assert harness.pods.evicted == ["pod-1"] and harness.queue.deleted == []
        harness.nodes.gate.set()
        await harness.wait_until_empty()
    assert harness.nodes.early_evicted_pods["i-1"] == ["default/pod-1"]


async def test_burst_evicts_all_pods_before_first_signal(
    harness: ConsumerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_consumer, "MAX_DEFERRAL_SECONDS", float("inf"))
    harness.nodes.gate = asyncio.Event()
    for number in range(500):
        harness.interrupt_node(number)
    async with harness.consuming():
        await harness.wait_until(lambda: harness.nodes.in_flight > 0)
        assert len(harness.pods.evicted) == 500
        harness.nodes.gate.set()
        await harness.wait_until_empty()
    assert len({instance for instance, _ in harness.nodes.notified}) == 500
    assert len(harness.queue.deleted) == 500


async def test_hanging_evictions_delay_signals_only_for_a_while(
    harness: ConsumerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    evictions_respond, evict = asyncio.Event(), harness.pods.evict

    async def wait_and_evict(pod: DrainPod) -> Eviction:
        await evictions_respond.wait()
        return await evict(pod)

    monkeypatch.setattr(harness.pods, "evict", wait_and_evict)
    for number in range(500):
        harness.interrupt_node(number)
    async with harness.consuming():
        await harness.wait_until(lambda: all(node.taints for node in harness.machines.found.values()))
        await harness.wait_until(lambda: len({instance for instance, _ in harness.nodes.notified}) == 500)
        assert not harness.pods.evicted
        evictions_respond.set()
        await harness.wait_until(lambda: len(harness.pods.evicted) == 500)
        await harness.wait_until_empty()


async def test_consumer_killed_before_signals_loses_nothing(harness: ConsumerHarness) -> None:
    for number in range(50):
        harness.interrupt_node(number)
    async with harness.consuming():
        await harness.wait_until(lambda: len(harness.pods.evicted) == 50)
    assert len(harness.queue.deleted) + len(harness.queue.hidden) + len(harness.queue.visible) == 50
    harness.queue.make_visible()
    async with harness.consuming():
        await harness.wait_until_empty()
    assert len({instance for instance, _ in harness.nodes.notified}) == 50
    assert len(harness.pods.evicted) == 50


async def test_endless_messages_do_not_block_signals(harness: ConsumerHarness) -> None:
    harness.interrupt_node(1)
    async with harness.consuming():
        for number in range(20_000):
            harness.queue.send(f"x-{number}")
        await harness.wait_until(lambda: bool(harness.nodes.notifications_for("i-1")))
        assert harness.queue.visible


async def test_messages_in_memory_are_limited(harness: ConsumerHarness) -> None:
    harness.nodes.gate = asyncio.Event()
    for number in range(500):
        harness.queue.send(f"i-{number}")
    async with harness.consuming():
        await harness.wait_until(lambda: harness.nodes.in_flight == 10 * MAX_POLLS)
        await asyncio.sleep(0.05)
        assert harness.nodes.max_in_flight == 10 * MAX_POLLS
        harness.nodes.gate.set()
        await harness.wait_until_empty()


async def test_burst_of_repeated_and_foreign_messages_is_consumed(harness: ConsumerHarness) -> None:
    """15,000 messages for 500 nodes; two thirds are repeated or foreign."""
    for number in range(15_000):
        harness.queue.send(f"i-{number % 500}" if number % 3 else f"x-{number}", message=rebalance_recommendation(NOW))
    async with harness.consuming():
        for _ in range(60):
            with suppress(AssertionError):
                await harness.wait_until_empty()
                break
    assert harness.queue.is_empty
    assert len(harness.nodes.notified) == 500
    counts = harness.metrics.counts
    assert (counts["deleted"], counts["dropped foreign"]) == (15_000, 5_000)


async def test_non_urgent_messages_are_batched_under_load(harness: ConsumerHarness) -> None:
    for number in range(3000):
        harness.queue.send(f"i-{number % 20}", message=scheduled_change(number // 20 % 10))
    async with harness.consuming():
        await harness.wait_until_empty()
    assert (
        len(harness.nodes.notified) == len({(instance, one.id) for instance, one in harness.nodes.notified}) == 20 * 10
    )
    assert harness.nodes.calls < 3000 / 5


@pytest.fixture
def unlimited_batching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch messages that are not urgent as long as polls return full batches."""
    monkeypatch.setattr("activities.interruption.queue_consumer.MAX_BATCH_SIZE", 10**9)
    monkeypatch.setattr("activities.interruption.queue_consumer.MAX_BATCH_SECONDS", 10.0**9)


@pytest.mark.usefixtures("unlimited_batching")
async def test_urgent_message_is_signaled_during_batching(harness: ConsumerHarness) -> None:
    for number in range(200):
        harness.queue.send(f"i-{number}", message=rebalance_recommendation(NOW))
    harness.queue.send("i-spot")
    harness.queue.visible += [harness.queue.visible[0]] * 100_000
    async with harness.consuming():
        await harness.wait_until(lambda: bool(harness.nodes.notifications_for("i-spot")))
        assert harness.queue.visible


@pytest.mark.usefixtures("unlimited_batching")
async def test_consumer_killed_during_batching_loses_nothing(harness: ConsumerHarness) -> None:
    for number in range(2000):
        harness.queue.send(f"i-{number}", message=rebalance_recommendation(NOW))
    async with harness.consuming():
        await harness.wait_until(lambda: len(harness.queue.hidden) > 1000)
        notified = len(harness.nodes.notified)
    assert notified < 1000 and len(harness.queue.deleted) == notified
    harness.queue.make_visible()
    async with harness.consuming():
        await harness.wait_until_empty()
    assert len({instance for instance, _ in harness.nodes.notified}) == 2000


async def test_undeliverable_messages_slow_polls_and_do_not_count_as_read(harness: ConsumerHarness) -> None:
    """Without Temporal, messages stay, and the alert uses the last successful read. Foreign messages do not count."""
    harness.nodes.outcomes = {"i-a": ["later"] * 3}
    harness.queue.send("i-a")
    async with harness.consuming():
        for _ in range(3):
            await harness.wait_until(lambda: bool(harness.queue.hidden))
            harness.queue.send("x-1")
            await harness.wait_until(lambda: not harness.queue.visible)
            await run_pending_tasks()
            assert "read queue" not in harness.metrics.counts
            harness.queue.make_visible()
        await harness.wait_until_empty()
        await harness.wait_until(lambda: "read queue" in harness.metrics.counts)
        paused = len(harness.pauses)
        harness.queue.send("i-b")
        await harness.wait_until_empty()
    assert sorted(set(harness.pauses)) == [1.0, 2.0, 4.0]
    assert len(harness.pauses) <= paused + 1


async def test_consumer_counts_as_reading_again_after_recovery_time(harness: ConsumerHarness) -> None:
    harness.nodes.outcomes = {"*": ["later"]}
    harness.queue.send("i-a")
    async with harness.consuming():
        await harness.wait_until(lambda: len(harness.pauses) > 3)
        assert "read queue" not in harness.metrics.counts
        harness.now += queue_consumer.DELIVERY_RECOVERY
        await harness.wait_until(lambda: harness.metrics.counts.get("read queue", 0) > 0)


async def test_short_fault_is_retried(harness: ConsumerHarness) -> None:
    harness.queue.faults = {"receive": [TryLater("503"), TryLater("503")]}
    harness.queue.send("i-a")
    async with harness.consuming():
        await harness.wait_until_empty()
    assert len(harness.pauses) == 2


@pytest.mark.parametrize("fault", [NotFound("no such queue"), Forbidden("not allowed")])
async def test_permanent_fault_ends_consumer(harness: ConsumerHarness, fault: Exception) -> None:
    harness.queue.faults = {"receive": [fault]}  # type: ignore[list-item]
    with pytest.raises(type(fault)):
        await asyncio.wait_for(harness.reading.run(), 60)


async def test_failed_deletion_is_counted_as_repeated_message(harness: ConsumerHarness) -> None:
    harness.queue.faults = {"delete": [TryLater("503")]}
    harness.queue.send("i-a")
    async with harness.consuming():
        await harness.wait_until(lambda: bool(harness.nodes.notified))
        await run_pending_tasks()
        harness.queue.make_visible()
        await harness.wait_until_empty()
    assert harness.metrics.counts["dropped repeated"] == 1
    assert harness.nodes.notifications_for("i-a") == ["spotInterruption announced"]
