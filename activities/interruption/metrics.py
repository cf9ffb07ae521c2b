"""What is counted of the reading of the queue and of instances' status: Karpenter's metrics by their names, and ours.

An alert goes by `LAST_READ`: it is set at the worker's start and at every successful read, so that it grows old where
nobody can read, and where nobody reads.

What became of the queue's messages, counted for people and carried by the heartbeat of the activity that reads them.

A worker that takes the reading over counts on from there, as far as the heartbeat told. It costs no event of the
workflow, and `tenure events` finds it with the workflow's description.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import ValidationError
from temporalio.common import MetricMeter

from tenure.model.interruption.records import MessageCounts, QueueMessage

RECEIVED: Final = "karpenter_interruption_received_messages_total"
DELETED: Final = "karpenter_interruption_deleted_messages_total"
DURATION: Final = "karpenter_interruption_message_queue_duration_seconds"
UNHEALTHY: Final = "karpenter_interruption_instance_status_unhealthy_total"
DROPPED: Final = "tenure_interruption_messages_dropped_total"
LAST_READ: Final = "tenure_interruption_last_read_seconds"
DURATION_BUCKETS: Final = (
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 86400.0,
)  # fmt: skip
"""Upper ends, in seconds; 120 is the notice of a spot interruption, 300 what Karpenter's queue keeps."""

SourceName = Literal["queue", "status"]


class InterruptionMetrics:
    """`queue`: the name of the queue that is to be read; empty for none."""

    def __init__(self, meter: MetricMeter, *, queue: str, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.message_counts: Counter[str] = Counter()
        """Messages received and deleted, and by its word why one was dropped, since this process began."""
        self._received = meter.create_counter(RECEIVED, "Messages received from the queue")
        self._deleted = meter.create_counter(DELETED, "Messages deleted from the queue")
        self._duration = meter.create_histogram_float(DURATION, "From the event to its handling", "s")
        self._unhealthy = meter.create_counter(UNHEALTHY, "What DescribeInstanceStatus said of our instances")
        self._dropped = meter.create_counter(DROPPED, "Messages that no node was told of")
        self._last_read = meter.create_gauge_float(LAST_READ, "When a source was last read, Unix time", "s")
        self.record_read("status")
        if queue:
            self.record_read("queue")

    def record_received(self, message: QueueMessage) -> None:
        self.message_counts["received"] += 1
        self._received.add(1, {"message_type": message.parsed.message_type})
        self._duration.record(max(0.0, self._clock() - message.parsed.at.timestamp()))

    def record_deleted(self, count: int) -> None:
        self.message_counts["deleted"] += count
        self._deleted.add(count)

    def record_dropped(self, why: str) -> None:
        self.message_counts[why] += 1
        self._dropped.add(1, {"why": why})

    def record_unhealthy(self, category: str) -> None:
        self._unhealthy.add(1, {"category": category})

    def record_read(self, source: SourceName) -> None:
        self._last_read.set(self._clock(), {"source": source})


class QueueCounter:
    """Of one activity. `message_counts`: the process's own counts, which go on while it lives."""

    def __init__(self, message_counts: Mapping[str, int], previous_details: Sequence[Any], now: datetime) -> None:
        self._message_counts, self._counts_at_start = message_counts, Counter(message_counts)
        self._previous = _parse_details(previous_details) or MessageCounts(since=now)

    def current_stats(self) -> MessageCounts:
        added = Counter(self._message_counts) - self._counts_at_start
        return self._previous.model_copy(update={"counts": dict(Counter(self._previous.counts) + added)})


def _parse_details(details: Sequence[Any]) -> MessageCounts | None:
    """None for a first attempt, and for the heartbeat of a worker that did not count."""
    try:
        return MessageCounts.model_validate(details[0]) if details else None
    except ValidationError:
        return None
