"""Interruptions in memory: the queue, instance statuses, and the notification of nodes."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.common import MetricMeter

from activities.interruption.metrics import InterruptionMetrics
from activities.ports.interruption import InterruptedNode, NotifyOutcome
from tenure.model.interruption.messages import InterruptionMessage, StatusReport
from tenure.model.interruption.records import InstanceInterruption, ParsedEvent, QueueMessage
from tests.support.fakes.faulty import FaultInjectable

WAIT_SPEEDUP = 1000.0
"""Long polls are this many times shorter than SQS's."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def spot_interruption(at: datetime | None = None) -> InterruptionMessage:
    return InterruptionMessage(kind="spotInterruption", id="terminate", at=at or utc_now(), code="terminate")


def scheduled_change(number: int) -> InterruptionMessage:
    """One of several, by number."""
    starts = datetime(2026, 6, 1, tzinfo=UTC) + timedelta(hours=number)
    return InterruptionMessage(
        kind="scheduledChange", id=f"event-{number}", at=starts - timedelta(days=14), starts=starts
    )


def rebalance_recommendation(at: datetime | None = None) -> InterruptionMessage:
    return InterruptionMessage(kind="rebalanceRecommendation", id="rebalance", at=at or utc_now())


@dataclass
class FakeQueue(FaultInjectable):
    """A message is visible until it is received, and hidden until it is deleted or `make_visible` is called."""

    visible: list[QueueMessage] = field(default_factory=list)
    hidden: dict[str, QueueMessage] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    polled_queues: list[str] = field(default_factory=list)
    """The queue name of each poll."""
    polling: int = 0
    max_concurrent_polls: int = 0
    sent: int = 0

    def send(self, *instances: str, message: InterruptionMessage | None = None, **more: Any) -> str:
        """Send one message about these instances. Returns its id."""
        now = utc_now()
        messages = tuple(
            InstanceInterruption(instance_id=one, message=message or spot_interruption(now)) for one in instances
        )
        return self.send_event(ParsedEvent(interruptions=messages, at=now), **more)

    def send_event(self, parsed: ParsedEvent, **more: Any) -> str:
        self.sent += 1
        name, now = f"m{self.sent}", utc_now()
        fields = {"id": name, "receipt": f"r-{name}", "sent": now, "first_received": now, "parsed": parsed}
        self.visible.append(QueueMessage.model_validate({**fields, **more}))
        return name

    def make_visible(self) -> None:
        self.visible += self.hidden.values()
        self.hidden.clear()

    async def receive(self, queue: str, *, wait: int) -> Sequence[QueueMessage]:
        self.polled_queues.append(queue)
        self.polling += 1
        self.max_concurrent_polls = max(self.max_concurrent_polls, self.polling)
        try:
            await asyncio.sleep(0 if self.visible else wait / WAIT_SPEEDUP)
        finally:
            self.polling -= 1
        found, self.visible = self.visible[:10], self.visible[10:]
        self.hidden |= {one.receipt: one for one in found}
        return found

    async def delete(self, queue: str, receipts: Sequence[str]) -> int:
        deleted = [one for one in receipts if self.hidden.pop(one, None)]
        self.deleted += [one.removeprefix("r-") for one in deleted]
        return len(deleted)

    @property
    def is_empty(self) -> bool:
        return not self.visible and not self.hidden


@dataclass
class FakeStatuses(FaultInjectable):
    reports: list[StatusReport] = field(default_factory=list)
    reads: int = 0

    async def read(self) -> Sequence[StatusReport]:
        self.reads += 1
        return tuple(self.reports)


@dataclass
class FakeInterruptionNotifier:
    """Records the notification of nodes. Instance ids that begin with `x` are foreign."""

    notified: list[tuple[str, InterruptionMessage]] = field(default_factory=list)
    outcomes: dict[str, list[NotifyOutcome]] = field(default_factory=dict)
    """By instance or `*` for any: outcomes that are returned in order instead of a notification."""
    failing_instances: set[str] = field(default_factory=set)
    early_evictions: dict[str, InterruptedNode] = field(default_factory=dict)
    """By instance: nodes whose pods are evicted before the notification."""
    early_evicted_pods: dict[str, list[str]] = field(default_factory=dict)
    """By instance: evicted pods of its notifications."""
    gate: asyncio.Event | None = None
    max_in_flight: int = 0
    in_flight: int = 0
    calls: int = 0

    def find_owned(self, instance_ids: Collection[str]) -> frozenset[str]:
        return frozenset(one for one in instance_ids if not one.startswith("x"))

    def find_interrupted_node(
        self, instance_id: str, messages: Sequence[InterruptionMessage]
    ) -> InterruptedNode | None:
        if instance_id in self.failing_instances:
            raise ValueError("injected failure")
        return self.early_evictions.get(instance_id)

    async def notify(
        self, instance_id: str, messages: Sequence[InterruptionMessage], evicted_pods: Sequence[str] = ()
    ) -> NotifyOutcome:
        self.early_evicted_pods[instance_id] = [*self.early_evicted_pods.get(instance_id, ()), *evicted_pods]
        self.calls += 1
        self.in_flight += len(messages)
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            if self.gate is not None:
                await self.gate.wait()
            return self._outcome(instance_id, messages)
        finally:
            self.in_flight -= len(messages)

    def _outcome(self, instance_id: str, messages: Sequence[InterruptionMessage]) -> NotifyOutcome:
        if instance_id in self.failing_instances:
            raise ValueError("injected failure")
        for key in (instance_id, "*"):
            if self.outcomes.get(key):
                return self.outcomes[key].pop(0)
        if not self.find_owned([instance_id]):
            return "foreign"
        known_keys = {(instance, one.kind, one.id, one.status) for instance, one in self.notified}
        new_messages = [one for one in messages if (instance_id, one.kind, one.id, one.status) not in known_keys]
        self.notified += [(instance_id, one) for one in new_messages]
        return "notified" if new_messages else "repeated"

    def notifications_for(self, instance_id: str) -> list[str]:
        return [f"{one.kind} {one.status}" for instance, one in self.notified if instance == instance_id]


class CountingMetrics(InterruptionMetrics):
    """Counts the recorded metrics."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        super().__init__(MetricMeter.noop, queue="")

    def _count(self, key: str, by: int = 1) -> None:
        self.counts[key] = self.counts.get(key, 0) + by

    def record_received(self, message: QueueMessage) -> None:
        super().record_received(message)
        self._count(f"received {message.parsed.message_type}")

    def record_deleted(self, count: int) -> None:
        super().record_deleted(count)
        self._count("deleted", count)

    def record_dropped(self, why: str) -> None:
        super().record_dropped(why)
        self._count(f"dropped {why}")

    def record_unhealthy(self, category: str) -> None:
        self._count(f"unhealthy {category}")

    def record_read(self, source: Any) -> None:
        self._count(f"read {source}")


@dataclass
class FakeInterruptions:
    """All dependencies of the readers of AWS messages."""

    queue: FakeQueue = field(default_factory=FakeQueue)
    statuses: FakeStatuses = field(default_factory=FakeStatuses)
    nodes: FakeInterruptionNotifier = field(default_factory=FakeInterruptionNotifier)
    metrics: CountingMetrics = field(default_factory=CountingMetrics)
