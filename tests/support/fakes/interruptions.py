"""What AWS says of instances, in memory: the queue, instances' status, and nodes that are told."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.common import MetricMeter

from activities.interruption.activities import InterruptionActivities
from activities.interruption.metrics import InterruptionMetrics
from activities.ports.disruption import DrainPorts
from activities.ports.interruption import Leaving, Standing
from tenure.model.interruption.notices import Notice, StatusReport
from tenure.model.interruption.records import EventParsed, QueueMessage, Said
from tests.support.fakes.drains import drain_ports
from tests.support.fakes.faulty import Faulty

QUICKER = 1000.0
"""Waiting for messages is so many times shorter than SQS's."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def spot(at: datetime | None = None) -> Notice:
    return Notice(kind="spotInterruption", id="terminate", at=at or utc_now(), code="terminate")


def scheduled(number: int) -> Notice:
    """One of several."""
    starts = datetime(2026, 6, 1, tzinfo=UTC) + timedelta(hours=number)
    return Notice(kind="scheduledChange", id=f"event-{number}", at=starts - timedelta(days=14), starts=starts)


def rebalance(at: datetime | None = None) -> Notice:
    return Notice(kind="rebalanceRecommendation", id="rebalance", at=at or utc_now())


@dataclass
class FakeQueue(Faulty):
    """Shows what was sent until it is deleted; what was read is hidden until `show_again`."""

    visible: list[QueueMessage] = field(default_factory=list)
    hidden: dict[str, QueueMessage] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    """The name of the queue, for each poll."""
    polling: int = 0
    most_polls: int = 0
    sent: int = 0

    def send(self, *instances: str, notice: Notice | None = None, **more: Any) -> str:
        """One message about these instances; its id."""
        now = utc_now()
        said = tuple(Said(instance_id=one, notice=notice or spot(now)) for one in instances)
        return self.put(EventParsed(said=said, at=now), **more)

    def put(self, parsed: EventParsed, **more: Any) -> str:
        self.sent += 1
        name, now = f"m{self.sent}", utc_now()
        fields = {"id": name, "receipt": f"r-{name}", "sent": now, "first_received": now, "parsed": parsed}
        self.visible.append(QueueMessage.model_validate({**fields, **more}))
        return name

    def show_again(self) -> None:
        self.visible += self.hidden.values()
        self.hidden.clear()

    async def receive(self, queue: str, *, wait: int) -> Sequence[QueueMessage]:
        self.read.append(queue)
        self.polling += 1
        self.most_polls = max(self.most_polls, self.polling)
        try:
            await asyncio.sleep(0 if self.visible else wait / QUICKER)
        finally:
            self.polling -= 1
        found, self.visible = self.visible[:10], self.visible[10:]
        self.hidden |= {one.receipt: one for one in found}
        return found

    async def delete(self, queue: str, receipts: Sequence[str]) -> int:
        gone = [one for one in receipts if self.hidden.pop(one, None)]
        self.deleted += [one.removeprefix("r-") for one in gone]
        return len(gone)

    @property
    def empty(self) -> bool:
        return not self.visible and not self.hidden


@dataclass
class FakeStatuses(Faulty):
    reports: list[StatusReport] = field(default_factory=list)
    reads: int = 0

    async def read(self) -> Sequence[StatusReport]:
        self.reads += 1
        return tuple(self.reports)


@dataclass
class FakeTeller:
    """Remembers who was told what. Instances of nobody's begin with `x`."""

    told: list[tuple[str, Notice]] = field(default_factory=list)
    standings: dict[str, list[Standing]] = field(default_factory=dict)
    """By instance, answered one after the other before it is told; `*` for any."""
    failing: set[str] = field(default_factory=set)
    evacuated: dict[str, Leaving] = field(default_factory=dict)
    """Nodes whose pods have to go before they are told, by instance."""
    left: dict[str, list[str]] = field(default_factory=dict)
    """The pods that each was told of."""
    gate: asyncio.Event | None = None
    most_at_once: int = 0
    under_way: int = 0
    calls: int = 0

    def owns(self, instance_ids: Collection[str]) -> frozenset[str]:
        return frozenset(one for one in instance_ids if not one.startswith("x"))

    def leaving(self, instance_id: str, notices: Sequence[Notice]) -> Leaving | None:
        if instance_id in self.failing:
            raise ValueError("told to fail")
        return self.evacuated.get(instance_id)

    async def notice(self, instance_id: str, notices: Sequence[Notice], left: Sequence[str] = ()) -> Standing:
        self.left[instance_id] = [*self.left.get(instance_id, ()), *left]
        self.calls += 1
        self.under_way += len(notices)
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            if self.gate is not None:
                await self.gate.wait()
            return self._answer(instance_id, notices)
        finally:
            self.under_way -= len(notices)

    def _answer(self, instance_id: str, notices: Sequence[Notice]) -> Standing:
        if instance_id in self.failing:
            raise ValueError("told to fail")
        for key in (instance_id, "*"):
            if self.standings.get(key):
                return self.standings[key].pop(0)
        if not self.owns([instance_id]):
            return "foreign"
        known = {(instance, one.kind, one.id, one.status) for instance, one in self.told}
        news = [one for one in notices if (instance_id, one.kind, one.id, one.status) not in known]
        self.told += [(instance_id, one) for one in news]
        return "told" if news else "repeated"

    def heard(self, instance_id: str) -> list[str]:
        return [f"{one.kind} {one.status}" for instance, one in self.told if instance == instance_id]


class Counted(InterruptionMetrics):
    """Adds up what is counted."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        super().__init__(MetricMeter.noop, queue="")

    def _count(self, key: str, by: int = 1) -> None:
        self.counts[key] = self.counts.get(key, 0) + by

    def received(self, message: QueueMessage) -> None:
        super().received(message)
        self._count(f"received {message.parsed.message_type}")

    def deleted(self, count: int) -> None:
        super().deleted(count)
        self._count("deleted", count)

    def dropped(self, why: str) -> None:
        super().dropped(why)
        self._count(f"dropped {why}")

    def unhealthy(self, category: str) -> None:
        self._count(f"unhealthy {category}")

    def read(self, source: Any) -> None:
        self._count(f"read {source}")


@dataclass
class FakeInterruptions:
    """All that the activities of the Interruption workflow touch."""

    queue: FakeQueue = field(default_factory=FakeQueue)
    statuses: FakeStatuses = field(default_factory=FakeStatuses)
    nodes: FakeTeller = field(default_factory=FakeTeller)
    metrics: Counted = field(default_factory=Counted)
    drains: DrainPorts = field(default_factory=drain_ports)

    def activities(self) -> InterruptionActivities:
        return InterruptionActivities(
            queue=self.queue, statuses=self.statuses, nodes=self.nodes, drains=self.drains, metrics=self.metrics
        )
