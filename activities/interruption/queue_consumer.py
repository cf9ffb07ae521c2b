"""One stay at the queue: polls, coalesces what came per node, tells the nodes, and deletes what they have.

Pods that have to go at once are told first. Each poll is told and deleted before its poller asks again, so that no more
is in memory than the polls under way bring. While polls come back full, more of them run side by side; those of which
nodes are evacuated are told later, since the pods of the others come first, and what has time is gathered, so that a
node hears of all of it at once. What could not be told stays in the queue, and comes again when SQS shows it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import structlog

from activities.interruption.metrics import InterruptionMetrics
from activities.nodeclaim.eviction import Evacuation, NodeEvacuation
from activities.ports.interruption import EventQueue, NodeTeller, Standing
from activities.runtime import patiently
from tenure.model.errors import Fault
from tenure.model.interruption.notices import Notice
from tenure.model.interruption.records import QueueMessage

log = structlog.get_logger(__name__)

FULL: Final = 10
"""Messages in one answer, when there are likely more."""
POLLS: Final = 8
"""Side by side, at most."""
WAIT: Final = 20
"""Seconds that a poll waits for a first message; those beside it do not wait for long."""
WAIT_BESIDE: Final = 1
TRIED_FOR: Final = timedelta(minutes=1)
"""So long a message about an instance that is not known yet is left to come again."""
AWAY_FIRST: Final = 1.0
AWAY_LONGEST: Final = 15.0
"""Seconds between polls while nobody can be told: a message that is received in vain too often may be set to go to
another queue."""
FORGOTTEN: Final = timedelta(seconds=45)
"""After which nobody waits to be told any more: what was read in vain had come again by then, and so it is gone."""

LATER: Final = 500
"""Polls at most that wait to be told; of ten messages each."""
LATER_BY: Final = 15.0
"""Seconds for which they wait at most: SQS hides messages for 20."""
GATHERED: Final = 5000
"""Messages at most that are gathered, ..."""
GATHERED_FOR: Final = 8.0
"""... and seconds for which they are while polls come back full."""
PATIENT: Final = frozenset({"scheduledChange", "rebalanceRecommendation"})
"""Of which AWS tells hours before, or that it may come to something."""
LOOK_EVERY: Final = 0.25
STORM: Final = 60.0
"""Seconds that a node among hundreds may take to be evacuated; its workflow is told before, and goes on beside."""

_Outcome = Standing | Literal["failed"]
_Said = dict[str, list[Notice]]
_Left = dict[str, NodeEvacuation]
"""By instance."""


class QueueReading:
    def __init__(
        self,
        name: str,
        *,
        queue: EventQueue,
        nodes: NodeTeller,
        metrics: InterruptionMetrics,
        evacuation: Evacuation,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name, self._queue, self._nodes, self._evacuation = name, queue, nodes, evacuation
        self._metrics, self._now, self._sleep = metrics, now, sleep
        self._beside: set[asyncio.Task[None]] = set()
        self._after: set[asyncio.Task[None]] = set()
        """Polls that are told and deleted later, ..."""
        self._evacuating: set[asyncio.Future[Any]] = set()
        """... and what goes before that."""
        self._gathered: list[QueueMessage] = []
        self._gatherer: asyncio.Task[None] | None = None
        self._away = 0.0
        """The last pause for want of anyone to tell; 0: there is somebody."""
        self._vain: datetime | None = None
        """When somebody could not be told last."""

    async def run(self) -> None:
        """Until cancelled. Raises the Fault that keeps the queue from being read."""
        try:
            while True:
                await self._turn(WAIT)
                if self._away:
                    await self._sleep(self._away)
        finally:
            under_way = (*self._beside, *self._after)
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _beside_it(self) -> None:
        """Until there is nothing more, or nobody to tell."""
        try:
            while await self._turn(WAIT_BESIDE) and not self._away:
                pass
        except Exception as error:
            log.warning("queue not read by a poll beside the first", queue=self._name, error=str(error)[:300])

    async def _turn(self, wait: int) -> int:
        """One poll; how many messages it brought."""
        found = await patiently(lambda: self._queue.receive(self._name, wait=wait), sleep=self._sleep)
        if len(found) >= FULL and len(self._beside) < POLLS - 1 and not self._away:
            self._keep(self._beside, self._beside_it())
        for message in found:
            self._metrics.received(message)
        said = _by_instance(found)
        left = self._leaving(said)
        if left and self._beside and len(self._after) < LATER:
            self._keep(self._after, self._take_later(found, said, left))
        elif self._beside and len(self._gathered) < GATHERED and all(_is_patient(one) for one in found):
            self._gather(found)
        else:
            await asyncio.gather(*(one.run() for one in left.values()))
            await self._take(found, said, left)
            await _say(left)
        return len(found)

    def _keep(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="queue-poll")
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def _gather(self, found: Sequence[QueueMessage]) -> None:
        self._gathered.extend(found)
        if self._gatherer is None or self._gatherer.done():
            self._gatherer = self._keep(self._after, self._take_gathered())

    async def _take_gathered(self) -> None:
        """Until nothing is gathered."""
        while self._gathered:
            await self._while(lambda: bool(self._beside) and len(self._gathered) < GATHERED, GATHERED_FOR)
            found, self._gathered = self._gathered, []
            try:
                await self._take(found, _by_instance(found), {})
            except Exception as error:
                log.error("messages not handled; they come again", queue=self._name, error=str(error)[:300])

    async def _while(self, holds: Callable[[], bool], seconds: float) -> None:
        """For so long at most."""
        waited, clock = 0.0, asyncio.get_running_loop().time
        until = clock() + seconds
        while holds() and waited < seconds and clock() < until:
            await self._sleep(LOOK_EVERY)
            waited += LOOK_EVERY

    async def _take_later(self, found: Sequence[QueueMessage], said: _Said, left: _Left) -> None:
        """Once the pods of all nodes were told to go, and before SQS shows the messages again. No poll waits for the
        nodes of another, so that all taints come before any eviction: what follows from these keeps all others waiting.
        """
        evacuating = asyncio.gather(*(one.run(STORM) for one in left.values()))
        self._evacuating.add(evacuating)
        evacuating.add_done_callback(self._evacuating.discard)
        try:
            await self._while(lambda: bool(self._beside or self._evacuating), LATER_BY)
            await self._take(found, said, left)
            await evacuating
            await _say(left)
        except Exception as error:
            log.error("messages not handled; they come again", queue=self._name, error=str(error)[:300])
        finally:
            evacuating.cancel()
            await asyncio.gather(evacuating, return_exceptions=True)

    def _leaving(self, said: _Said) -> _Left:
        """Nodes whose pods have to go now."""
        begun = {instance: self._leaving_one(instance, notices) for instance, notices in said.items()}
        return {instance: one for instance, one in begun.items() if one}

    def _leaving_one(self, instance_id: str, notices: list[Notice]) -> NodeEvacuation | None:
        try:
            leaving = self._nodes.leaving(instance_id, notices)
            return self._evacuation.of(leaving) if leaving else None
        except Exception as error:
            log.error("node not evacuated; its drain does it", instance=instance_id, error=str(error)[:300])
            return None

    async def _take(self, found: Sequence[QueueMessage], said: _Said, left: _Left) -> None:
        outcomes = await self._tell(said, left)
        self._note_away(outcomes)
        done = [message for message in found if self._is_done(message, outcomes)]
        if done:
            await self._delete(done)
        if not self._away:
            self._metrics.read("queue")

    async def _tell(self, said: _Said, left: _Left) -> dict[str, _Outcome]:
        told = await asyncio.gather(*(self._tell_one(one, notices, left.get(one)) for one, notices in said.items()))
        return dict(zip(said, told, strict=True))

    async def _tell_one(self, instance_id: str, notices: list[Notice], left: NodeEvacuation | None) -> _Outcome:
        """What goes wrong with one keeps no other from being told."""
        try:
            return await self._nodes.notice(instance_id, notices, left.pods if left else ())
        except Exception as error:
            log.error("message not handled; it comes again", instance=instance_id, error=str(error)[:300])
            return "failed"

    def _note_away(self, outcomes: dict[str, _Outcome]) -> None:
        """Temporal may be away for all, or busy for one: only where nobody was told there is nobody."""
        found, now = set(outcomes.values()), self._now()
        if "later" in found and "told" not in found:
            self._vain = now
            self._away = min(AWAY_LONGEST, max(AWAY_FIRST, 2 * self._away))
        elif "told" in found or self._vain is None or now - self._vain >= FORGOTTEN:
            self._vain, self._away = None, 0.0

    def _is_done(self, message: QueueMessage, outcomes: dict[str, _Outcome]) -> bool:
        """Every node that it speaks of knows, or there is none. Says why it was for nobody. However old it is, a node
        of ours that is without a workflow, after an outage or a lost store, hears it once it has one."""
        if message.parsed.dropped:
            log.info("message dropped", id=message.id, why=message.parsed.dropped, said=message.parsed.why)
            self._metrics.dropped(message.parsed.dropped)
            return True
        found = {outcomes[said.instance_id] for said in message.parsed.said}
        waits = self._now() - message.first_received < TRIED_FOR
        if found & {"later", "no workflow", "failed"} or ("not yet" in found and waits):
            return False
        if "told" not in found:
            why = next((one for one in ("repeated", "over") if one in found), "foreign")
            self._metrics.dropped(why)
        return True

    async def _delete(self, done: Sequence[QueueMessage]) -> None:
        """What is not deleted comes again, as a repeat."""
        try:
            gone = await self._queue.delete(self._name, [message.receipt for message in done])
        except Fault as fault:
            log.error("messages not deleted; they come again", queue=self._name, count=len(done), fault=str(fault))
            return
        self._metrics.deleted(gone)


async def _say(left: _Left) -> None:
    for one in left.values():
        await one.tell()


def _is_patient(message: QueueMessage) -> bool:
    return all(said.notice.kind in PATIENT for said in message.parsed.said)


def _by_instance(found: Sequence[QueueMessage]) -> _Said:
    by_instance: _Said = {}
    for message in found:
        for said in message.parsed.said:
            notices = by_instance.setdefault(said.instance_id, [])
            if said.notice not in notices:
                notices.append(said.notice)
    return by_instance
