"""Metrics of queue messages and instance status, and the message counts in the queue activity's heartbeat.

INTERRUPTION_LAST_READ is for an alert: it is set at the worker's start and at every successful read. The next worker
continues the counts from the heartbeat; `tenure events` shows them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError
from temporalio.common import MetricMeter

from tenure import metrics
from tenure.clock import utc_now
from tenure.model.interruption.records import MessageCounts, QueueMessage

SourceName = Literal["queue", "status"]


def _unix_time() -> float:
    return utc_now().timestamp()


class InterruptionMetrics:
    """`queue`: name of the queue to read; empty without one."""

    def __init__(self, meter: MetricMeter, *, queue: str, clock: Callable[[], float] = _unix_time) -> None:
        self._clock = clock
        self.message_counts: Counter[str] = Counter()
        """Counts since the start of this process: received and deleted messages, and dropped ones by reason."""
        self._received = metrics.INTERRUPTION_RECEIVED_MESSAGES.bind(meter)
        self._deleted = metrics.INTERRUPTION_DELETED_MESSAGES.bind(meter)
        self._duration = metrics.INTERRUPTION_MESSAGE_QUEUE_DURATION.bind(meter)
        self._unhealthy = metrics.INTERRUPTION_INSTANCE_STATUS_UNHEALTHY.bind(meter)
        self._dropped = metrics.INTERRUPTION_MESSAGES_DROPPED.bind(meter)
        self._last_read = metrics.INTERRUPTION_LAST_READ.bind(meter)
        self.record_read("status")
        if queue:
            self.record_read("queue")

    def record_received(self, message: QueueMessage) -> None:
        self.message_counts["received"] += 1
        self._received.record(message_type=message.parsed.message_type)
        self._duration.record(max(0.0, self._clock() - message.parsed.at.timestamp()))

    def record_deleted(self, count: int) -> None:
        self.message_counts["deleted"] += count
        self._deleted.record(count)

    def record_dropped(self, why: str) -> None:
        self.message_counts[why] += 1
        self._dropped.record(why=why)

    def record_unhealthy(self, category: str) -> None:
        self._unhealthy.record(category=category)

    def record_read(self, source: SourceName) -> None:
        self._last_read.record(self._clock(), source=source)


class QueueCounter:
    """Message counts of one activity. `message_counts`: the counts of the process, which continue after the
    activity."""

    def __init__(self, message_counts: Mapping[str, int], previous_details: Sequence[Any], now: datetime) -> None:
        self._message_counts, self._counts_at_start = message_counts, Counter(message_counts)
        self._previous = _parse_details(previous_details) or MessageCounts(since=now)

    def current_stats(self) -> MessageCounts:
        added = Counter(self._message_counts) - self._counts_at_start
        return self._previous.model_copy(update={"counts": dict(Counter(self._previous.counts) + added)})


def _parse_details(details: Sequence[Any]) -> MessageCounts | None:
    """None for a first attempt, and for the heartbeat of a version without counts."""
    try:
        return MessageCounts.model_validate(details[0]) if details else None
    except ValidationError:
        return None
