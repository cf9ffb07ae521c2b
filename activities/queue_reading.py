"""One stay at the queue: polls, coalesces what came per node, tells the nodes, and deletes what they have.

Each poll is told and deleted before its poller asks again, so that no more is in memory than the polls under way
bring. While polls come back full, more of them run side by side. What could not be told stays in the queue, and comes
again when SQS shows it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import structlog

from activities.interruption_metrics import InterruptionMetrics
from activities.interruption_ports import EventQueue, NodeTeller, Standing
from activities.patience import patiently
from model.event_messages import QueueMessage
from model.faults import Fault
from model.interruptions import Notice

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

_Outcome = Standing | Literal["failed"]


class QueueReading:
    def __init__(
        self,
        name: str,
        *,
        queue: EventQueue,
        nodes: NodeTeller,
        metrics: InterruptionMetrics,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name, self._queue, self._nodes = name, queue, nodes
        self._metrics, self._now, self._sleep = metrics, now, sleep
        self._beside: set[asyncio.Task[None]] = set()
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
            for task in self._beside:
                task.cancel()
            await asyncio.gather(*self._beside, return_exceptions=True)

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
            task = asyncio.create_task(self._beside_it(), name="queue-poll")
            self._beside.add(task)
            task.add_done_callback(self._beside.discard)
        await self._take(found)
        return len(found)

    async def _take(self, found: Sequence[QueueMessage]) -> None:
        for message in found:
            self._metrics.received(message)
        outcomes = await self._tell(_by_instance(found))
        self._note_away(outcomes)
        done = [message for message in found if self._is_done(message, outcomes)]
        if done:
            await self._delete(done)
        if not self._away:
            self._metrics.read("queue")

    async def _tell(self, said: dict[str, list[Notice]]) -> dict[str, _Outcome]:
        told = await asyncio.gather(*(self._tell_one(instance, notices) for instance, notices in said.items()))
        return dict(zip(said, told, strict=True))

    async def _tell_one(self, instance_id: str, notices: list[Notice]) -> _Outcome:
        """What goes wrong with one keeps no other from being told."""
        try:
            return await self._nodes.notice(instance_id, notices)
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
        """Every node that it speaks of knows, or there is none. Says why it was for nobody."""
        if message.parsed.dropped:
            log.info("message dropped", id=message.id, why=message.parsed.dropped, said=message.parsed.why)
            self._metrics.dropped(message.parsed.dropped)
            return True
        found = {outcomes[said.instance_id] for said in message.parsed.said}
        waits = self._now() - message.first_received < TRIED_FOR
        if found & {"later", "failed"} or ("not yet" in found and waits):
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


def _by_instance(found: Sequence[QueueMessage]) -> dict[str, list[Notice]]:
    by_instance: dict[str, list[Notice]] = {}
    for message in found:
        for said in message.parsed.said:
            notices = by_instance.setdefault(said.instance_id, [])
            if said.notice not in notices:
                notices.append(said.notice)
    return by_instance
