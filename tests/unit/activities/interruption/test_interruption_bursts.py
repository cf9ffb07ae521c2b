"""The queue under load: more polls, early evictions before signals, and batches of messages that are not urgent."""

import asyncio
from contextlib import suppress

import pytest

from activities.interruption import queue_consumer
from activities.interruption.queue_consumer import MAX_POLLS
from tenure.model.provider_results import DrainPod, Eviction
from tests.support.fakes.interruptions import rebalance_recommendation, scheduled_change
from tests.unit.activities.interruption.consumer_harness import NOW, ConsumerHarness


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


async def test_pods_are_evicted_before_workflow_is_signaled(harness: ConsumerHarness) -> None:
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
