"""Metrics of queue messages and instance status, and the message counts that `tenure events` shows.

INTERRUPTION_LAST_READ is for alerts: it is set at the worker's start, at every successful read, and while the worker
waits for another controller, which reads the events.
"""

from collections import Counter
from typing import Literal

from temporalio.common import MetricMeter

from tenure import metrics
from tenure.clock import utc_now
from tenure.model.interruption.records import QueueMessage

SourceName = Literal["queue", "status"]


class InterruptionMetrics:
    """`queue`: name of the queue to read; empty without one."""

    def __init__(self, meter: MetricMeter, *, queue: str) -> None:
        self.message_counts: Counter[str] = Counter()
        """Counts since the start of this process: received and deleted messages, and dropped ones by reason."""
        self._received = metrics.INTERRUPTION_RECEIVED_MESSAGES.bind(meter)
        self._deleted = metrics.INTERRUPTION_DELETED_MESSAGES.bind(meter)
        self._duration = metrics.INTERRUPTION_MESSAGE_QUEUE_DURATION.bind(meter)
        self._unhealthy = metrics.INTERRUPTION_INSTANCE_STATUS_UNHEALTHY.bind(meter)
        self._dropped = metrics.INTERRUPTION_MESSAGES_DROPPED.bind(meter)
        self._last_read = metrics.INTERRUPTION_LAST_READ.bind(meter)
        self._sources: tuple[SourceName, ...] = ("status", "queue") if queue else ("status",)
        self.record_wait()

    def record_wait(self) -> None:
        """Record that no read is due, at the start and while another controller reads the events."""
        for source in self._sources:
            self.record_read(source)

    def record_received(self, message: QueueMessage) -> None:
        self.message_counts["received"] += 1
        self._received.record(message_type=message.parsed.message_type)
        self._duration.record(max(0.0, (utc_now() - message.parsed.at).total_seconds()))

    def record_deleted(self, count: int) -> None:
        self.message_counts["deleted"] += count
        self._deleted.record(count)

    def record_dropped(self, why: str) -> None:
        self.message_counts[why] += 1
        self._dropped.record(why=why)

    def record_unhealthy(self, category: str) -> None:
        self._unhealthy.record(category=category)

    def record_read(self, source: SourceName) -> None:
        self._last_read.record(utc_now().timestamp(), source=source)
