"""Activities of the Interruption workflow: long reads on the plan queue, and Kubernetes events about a node.

Only the process that hosts the watch polls that queue, since its cache has the node of each instance. If a source
cannot be read, its activity ends with the error as a value.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import structlog
from temporalio import activity

from activities.interruption.instance_status import InstanceStatusReader
from activities.interruption.metrics import InterruptionMetrics, QueueCounter
from activities.interruption.queue_consumer import QueueConsumer
from activities.nodeclaim.eviction import BatchedFirstEviction, EarlyEvictions
from activities.ports.core import Named, Ports, publish_event_on
from activities.ports.interruption import EventQueue, InstanceStatuses, NodeInterruptionNotifier
from activities.runtime import background_heartbeat, map_faults, not_yet_error
from tenure.apis.labels import INTERRUPTIONS, MAINTENANCE_UNTIL
from tenure.clock import utc_now
from tenure.model.base import REQUEST_PRIORITY
from tenure.model.errors import Fault
from tenure.model.interruption.records import (
    InstanceStatusRequest,
    InterruptionNotification,
    QueueSetting,
    SourceReadResult,
)

log = structlog.get_logger(__name__)

_FAULT_LIMIT = 300


class InterruptionActivities:
    def __init__(
        self,
        *,
        queue: EventQueue,
        statuses: InstanceStatuses,
        nodes: NodeInterruptionNotifier,
        ports: Ports,
        metrics: InterruptionMetrics,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._queue, self._nodes, self._metrics, self._now = queue, nodes, metrics, now
        self._early_evictions = EarlyEvictions(ports)
        self._statuses = InstanceStatusReader(statuses=statuses, nodes=nodes, metrics=metrics, now=now)

    @activity.defn
    @map_faults
    async def consume_queue(self, request: QueueSetting) -> SourceReadResult:
        """Run until the queue cannot be read."""
        consumer = QueueConsumer(
            request.queue,
            queue=self._queue,
            nodes=self._nodes,
            early_evictions=self._early_evictions,
            metrics=self._metrics,
            now=self._now,
        )
        counter = QueueCounter(self._metrics.message_counts, activity.info().heartbeat_details, self._now())
        return await _read_until_shutdown(
            lambda: _run_forever(consumer.run), f"queue {request.queue}", details=lambda: (counter.current_stats(),)
        )

    @activity.defn
    @map_faults
    async def read_instance_status(self, request: InstanceStatusRequest) -> SourceReadResult:
        """Run until the open messages change, or the status cannot be read."""
        ended = await _read_until_shutdown(lambda: self._statuses.run(request), "instances' status")
        return (
            ended.model_copy(update={"open_interruptions": request.open_interruptions, "last": request.last})
            if ended.fault
            else ended
        )


async def _run_forever(run: Callable[[], Awaitable[None]]) -> SourceReadResult:
    await run()
    return SourceReadResult()


async def _read_until_shutdown(
    read: Callable[[], Awaitable[SourceReadResult]], source: str, *, details: Callable[[], tuple[Any, ...]] = tuple
) -> SourceReadResult:
    """A fault is returned as a value. At worker shutdown, the activity fails immediately and another worker retries
    it."""
    reading = asyncio.ensure_future(read())
    shutdown = asyncio.ensure_future(activity.wait_for_worker_shutdown())
    try:
        async with background_heartbeat(details):
            await asyncio.wait({reading, shutdown}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
    except Fault as fault:
        log.warning("source not read", source=source, fault=str(fault))
        text = f"{fault.code}: {fault.message}" if fault.code else fault.message
        return SourceReadResult(fault=text[:_FAULT_LIMIT])
    finally:
        shutdown.cancel()
        reading.cancel()
        await asyncio.gather(reading, shutdown, return_exceptions=True)
    raise not_yet_error(
        "worker shutdown: the next host of the watch continues", retry_after=timedelta(milliseconds=100)
    )


class NodeInterruptionActivities:
    def __init__(self, ports: Ports, first_evictions: BatchedFirstEviction) -> None:
        """`first_evictions`: first evictions of all drains. Events are published after them."""
        self._claims, self._nodes, self._events = ports.claims, ports.nodes, ports.events
        self._first_evictions = first_evictions

    @activity.defn
    @map_faults
    async def publish_interruption_events(self, request: InterruptionNotification) -> None:
        """Write the annotation before the events: an event may be repeated, but the annotation must not be lost."""
        REQUEST_PRIORITY.set("crowd")
        await self._first_evictions.wait_for_others()
        ref = request.claim
        if request.write:
            maintenance_until = (
                request.maintenance_until.isoformat(timespec="seconds") if request.maintenance_until else None
            )
            await self._claims.patch_annotations(
                ref.name, {INTERRUPTIONS: request.text or None, MAINTENANCE_UNTIL: maintenance_until}, uid=ref.uid
            )
        if not request.events:
            return
        node = await self._nodes.get(ref.node_name) if ref.node_name else None
        objects: list[tuple[str, Named]] = [("NodeClaim", ref)]
        if node is not None and node.provider_id == ref.provider_id:
            objects.append(("Node", node))
        for event in request.events:
            for kind, about in objects:
                await publish_event_on(self._events, kind, about, event.reason, event.message)
