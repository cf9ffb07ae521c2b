"""The queue is consumed: nodes get signals, and messages are deleted afterwards, also after faults."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from activities.interruption import queue_consumer
from tenure.model.errors import Forbidden, NotFound, TryLater
from tenure.model.interruption.records import ParsedEvent, QueueMessage
from tests.support.fakes.event_loop import run_pending_tasks
from tests.support.fakes.interruptions import rebalance_recommendation
from tests.unit.activities.interruption.consumer_harness import NOW, ConsumerHarness


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


async def test_old_message_is_delivered_once_node_has_a_workflow(harness: ConsumerHarness) -> None:
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


async def test_error_while_processing_a_poll_does_not_end_the_consumer(
    harness: ConsumerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = harness.reading._is_done

    def process_or_raise(message: QueueMessage, outcomes: dict[str, Any]) -> bool:
        if "i-bad" in outcomes:
            raise ZeroDivisionError("injected")
        return process(message, outcomes)

    monkeypatch.setattr(harness.reading, "_is_done", process_or_raise)
    bad = harness.queue.send("i-bad")
    async with harness.consuming() as consumer:
        await harness.wait_until(lambda: bool(harness.queue.hidden))
        good = harness.queue.send("i-a")
        await harness.wait_until(lambda: good in harness.queue.deleted)
        assert not consumer.done() and bad not in harness.queue.deleted


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
