"""The activities of the Interruption workflow, on the plan queue: they read for as long as they can.

Only the process that hosts the watch polls that queue, and only its caches know which node an instance is. A source
that cannot be read ends its activity with a value that says why; a process that stops hands it on.

What AWS says of a node is said on its NodeClaim and its Node, and written down where it outlives its workflow.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from temporalio import activity

from activities.interruption.instance_status import StatusReading
from activities.interruption.metrics import Counting, InterruptionMetrics
from activities.interruption.queue_consumer import QueueReading
from activities.nodeclaim.annotations import Annotated
from activities.nodeclaim.eviction import Evacuation, FirstLooks
from activities.ports.core import Events, Nodes
from activities.ports.disruption import DrainPorts
from activities.ports.interruption import EventQueue, InstanceStatuses, NodeTeller
from activities.runtime import faults_mapped, heartbeating, not_yet
from tenure.apis.labels import EXPECTED_BACK, INTERRUPTIONS
from tenure.model.base import LANE
from tenure.model.errors import Fault
from tenure.model.interruption.records import NoticesTold, QueueAsked, ReadingEnded, StatusAsked

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


class NodeInterruptionActivities:
    def __init__(
        self, *, claims: Annotated, nodes: Nodes, events: Events, first_looks: FirstLooks | None = None
    ) -> None:
        """`first_looks` of drains, after which the word is given."""
        self._claims, self._nodes, self._events = claims, nodes, events
        self._first_looks = first_looks or FirstLooks()

    @activity.defn
    @faults_mapped
    async def tell_notices(self, told: NoticesTold) -> None:
        """Write first: what is said may be said twice, what is not written is lost."""
        LANE.set("crowd")
        await self._first_looks.others()
        ref = told.claim
        if told.write:
            back = told.expected_back.isoformat(timespec="seconds") if told.expected_back else None
            await self._claims.annotate(ref.name, {INTERRUPTIONS: told.text or None, EXPECTED_BACK: back}, uid=ref.uid)
        if not told.said:
            return
        node = await self._nodes.get(ref.node_name) if ref.node_name else None
        objects = [("NodeClaim", ref.name, ref.uid)]
        if node is not None and node.provider_id == ref.provider_id:
            objects.append(("Node", node.name, node.uid))
        for said in told.said:
            for kind, name, uid in objects:
                await self._events.publish(
                    kind=kind, name=name, uid=uid, reason=said.reason, message=said.message, warning=said.warning
                )
