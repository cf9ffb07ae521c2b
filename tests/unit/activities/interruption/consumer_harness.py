"""A QueueConsumer over fakes of the queue, the node workflows and the API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from temporalio.common import MetricMeter

from activities.interruption import queue_consumer
from activities.interruption.queue_consumer import QueueConsumer
from activities.nodeclaim.eviction import EarlyEvictions
from activities.ports.interruption import InterruptedNode
from tests.support.fakes.interruptions import FakeInterruptions
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
            early_evictions=EarlyEvictions(fakes.build_ports(), MetricMeter.noop),
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
        task = asyncio.ensure_future(self.reading.run())
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
