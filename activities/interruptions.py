"""The activities of the Interruption workflow, on the plan queue: they read for as long as they can.

Only the process that hosts the watch polls that queue, and only its caches know which node an instance is. A source
that cannot be read ends its activity with a value that says why; a process that stops hands it on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from temporalio import activity

from activities.drain_ports import DrainPorts
from activities.errors import faults_mapped, not_yet
from activities.evacuating import Evacuation
from activities.heartbeats import heartbeating
from activities.interruption_metrics import InterruptionMetrics
from activities.interruption_ports import EventQueue, InstanceStatuses, NodeTeller
from activities.queue_reading import QueueReading
from activities.status_reading import StatusReading
from activities.tally import Counting
from model.faults import Fault
from model.reading import QueueAsked, ReadingEnded, StatusAsked

log = structlog.get_logger(__name__)

_FAULT_LIMIT = 300


def _utc_now() -> datetime:
    return datetime.now(UTC)


class InterruptionActivities:
    def __init__(
        self,
        *,
        queue: EventQueue,
        statuses: InstanceStatuses,
        nodes: NodeTeller,
        drains: DrainPorts,
        metrics: InterruptionMetrics,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._queue, self._nodes, self._metrics, self._now = queue, nodes, metrics, now
        self._evacuation = Evacuation(drains)
        self._statuses = StatusReading(statuses=statuses, nodes=nodes, metrics=metrics, now=now)

    @activity.defn
    @faults_mapped
    async def read_queue(self, asked: QueueAsked) -> ReadingEnded:
        """Until the queue cannot be read."""
        reading = QueueReading(
            asked.queue,
            queue=self._queue,
            nodes=self._nodes,
            evacuation=self._evacuation,
            metrics=self._metrics,
            now=self._now,
        )
        counting = Counting(self._metrics.counted, activity.info().heartbeat_details, self._now())
        return await _while_here(
            lambda: _endless(reading.run), f"queue {asked.queue}", told=lambda: (counting.tally(),)
        )

    @activity.defn
    @faults_mapped
    async def read_instance_status(self, asked: StatusAsked) -> ReadingEnded:
        """Until what is open has changed, or the status cannot be read."""
        ended = await _while_here(lambda: self._statuses.run(asked), "instances' status")
        return ended.model_copy(update={"told": asked.told, "last": asked.last}) if ended.fault else ended


async def _endless(run: Callable[[], Awaitable[None]]) -> ReadingEnded:
    await run()
    return ReadingEnded()


async def _while_here(
    read: Callable[[], Awaitable[ReadingEnded]], source: str, *, told: Callable[[], tuple[Any, ...]] = tuple
) -> ReadingEnded:
    """A fault is a value; a worker that stops gives up at once, and another one goes on."""
    reading = asyncio.ensure_future(read())
    leaving = asyncio.ensure_future(activity.wait_for_worker_shutdown())
    try:
        async with heartbeating(told):
            await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
    except Fault as fault:
        log.warning("source not read", source=source, fault=str(fault))
        text = f"{fault.code}: {fault.message}" if fault.code else fault.message
        return ReadingEnded(fault=text[:_FAULT_LIMIT])
    finally:
        leaving.cancel()
        reading.cancel()
        await asyncio.gather(reading, leaving, return_exceptions=True)
    raise not_yet("this worker stops; the next host of the watch reads on", again_in=timedelta(milliseconds=100))
