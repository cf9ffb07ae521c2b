"""The queue consumer: polls, groups messages by node, notifies the nodes, and deletes the messages they have.

Pods that have to go at once are evicted first. A poller deletes the messages of a poll before it polls again, which
bounds memory. While polls come back full, more pollers run. In such a burst, nodes whose pods are evicted are notified
after the evictions of all nodes, and messages that can wait are gathered, so that a node gets all of them at once. A
message that could not be delivered stays in the queue until SQS shows it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import structlog

from activities.interruption.metrics import InterruptionMetrics
from activities.nodeclaim.eviction import EarlyEvictions, NodeEarlyEviction
from activities.ports.interruption import EventQueue, NodeInterruptionNotifier, NotifyOutcome
from activities.runtime import retry_transient
from tenure.model.errors import Fault
from tenure.model.interruption.messages import InterruptionMessage
from tenure.model.interruption.records import QueueMessage

log = structlog.get_logger(__name__)

FULL_POLL: Final = 10
"""Messages in one answer, when there are likely more."""
MAX_POLLS: Final = 8
"""Side by side, at most."""
POLL_WAIT_SECONDS: Final = 20
"""Seconds that a poll waits for a first message; those beside it do not wait for long."""
EXTRA_POLL_WAIT_SECONDS: Final = 1
TRIED_FOR: Final = timedelta(minutes=1)
"""So long a message about an instance that is not known yet is left to come again."""
FAILED_FOR: Final = timedelta(minutes=30)
"""How long a message is tried again whose handling raises an error; some 90 receives. Then it is deleted."""
UNAVAILABLE_FIRST_PAUSE: Final = 1.0
UNAVAILABLE_MAX_PAUSE: Final = 15.0
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
GATHERABLE_KINDS: Final = frozenset({"scheduledChange", "rebalanceRecommendation"})
"""Of which AWS tells hours before, or that it may come to something."""
CHECK_EVERY_SECONDS: Final = 0.25
BURST_EVICTION_SECONDS: Final = 60.0
"""Seconds that a node among hundreds may take to be evacuated; its workflow is told before, and goes on beside."""

_Outcome = NotifyOutcome | Literal["failed"]
_MessagesByInstance = dict[str, list[InterruptionMessage]]
_EvictionsByInstance = dict[str, NodeEarlyEviction]
"""By instance."""


class QueueConsumer:
    def __init__(
        self,
        name: str,
        *,
        queue: EventQueue,
        nodes: NodeInterruptionNotifier,
        metrics: InterruptionMetrics,
        early_evictions: EarlyEvictions,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name, self._queue, self._nodes, self._early_evictions = name, queue, nodes, early_evictions
        self._metrics, self._now, self._sleep = metrics, now, sleep
        self._extra_polls: set[asyncio.Task[None]] = set()
        self._later_tasks: set[asyncio.Task[None]] = set()
        """Polls that are told and deleted later, ..."""
        self._running_evictions: set[asyncio.Future[Any]] = set()
        """... and what goes before that."""
        self._gathered: list[QueueMessage] = []
        self._gatherer: asyncio.Task[None] | None = None
        self._unavailable_pause = 0.0
        """The last pause for want of anyone to tell; 0: there is somebody."""
        self._last_undelivered_at: datetime | None = None
        """When somebody could not be told last."""

    async def run(self) -> None:
        """Until cancelled. Raises the Fault that keeps the queue from being read."""
        try:
            while True:
                await self._poll(POLL_WAIT_SECONDS)
                if self._unavailable_pause:
                    await self._sleep(self._unavailable_pause)
        finally:
            running = (*self._extra_polls, *self._later_tasks)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _poll_extra(self) -> None:
        """Until there is nothing more, or nobody to tell."""
        try:
            while await self._poll(EXTRA_POLL_WAIT_SECONDS) and not self._unavailable_pause:
                pass
        except Exception as error:
            log.warning("queue not read by a poll beside the first", queue=self._name, error=str(error)[:300])

    async def _poll(self, wait: int) -> int:
        """One poll; how many messages it brought."""
        found = await retry_transient(lambda: self._queue.receive(self._name, wait=wait), sleep=self._sleep)
        if len(found) >= FULL_POLL and len(self._extra_polls) < MAX_POLLS - 1 and not self._unavailable_pause:
            self._start_task(self._extra_polls, self._poll_extra())
        for message in found:
            self._metrics.record_received(message)
        messages = _group_by_instance(found)
        evictions = self._prepare_evictions(messages)
        if evictions and self._extra_polls and len(self._later_tasks) < LATER:
            self._start_task(self._later_tasks, self._process_later(found, messages, evictions))
        elif self._extra_polls and len(self._gathered) < GATHERED and all(_is_deferrable(one) for one in found):
            self._add_gathered(found)
        else:
            await asyncio.gather(*(one.run() for one in evictions.values()))
            await self._process_messages(found, messages, evictions)
            await _publish_evictions(evictions)
        return len(found)

    def _start_task(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="queue-poll")
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def _add_gathered(self, found: Sequence[QueueMessage]) -> None:
        self._gathered.extend(found)
        if self._gatherer is None or self._gatherer.done():
            self._gatherer = self._start_task(self._later_tasks, self._process_gathered())

    async def _process_gathered(self) -> None:
        """Until nothing is gathered."""
        while self._gathered:
            await self._wait_while(lambda: bool(self._extra_polls) and len(self._gathered) < GATHERED, GATHERED_FOR)
            found, self._gathered = self._gathered, []
            try:
                await self._process_messages(found, _group_by_instance(found), {})
            except Exception as error:
                log.error("messages not handled; they come again", queue=self._name, error=str(error)[:300])

    async def _wait_while(self, condition: Callable[[], bool], seconds: float) -> None:
        """For so long at most."""
        waited, clock = 0.0, asyncio.get_running_loop().time
        until = clock() + seconds
        while condition() and waited < seconds and clock() < until:
            await self._sleep(CHECK_EVERY_SECONDS)
            waited += CHECK_EVERY_SECONDS

    async def _process_later(
        self, found: Sequence[QueueMessage], messages: _MessagesByInstance, evictions: _EvictionsByInstance
    ) -> None:
        """Once the pods of all nodes were told to go, and before SQS shows the messages again. No poll waits for the
        nodes of another, so that all taints come before any eviction: what follows from these keeps all others waiting.
        """
        running = asyncio.gather(*(one.run(BURST_EVICTION_SECONDS) for one in evictions.values()))
        self._running_evictions.add(running)
        running.add_done_callback(self._running_evictions.discard)
        try:
            await self._wait_while(lambda: bool(self._extra_polls or self._running_evictions), LATER_BY)
            await self._process_messages(found, messages, evictions)
            await running
            await _publish_evictions(evictions)
        except Exception as error:
            log.error("messages not handled; they come again", queue=self._name, error=str(error)[:300])
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _prepare_evictions(self, messages: _MessagesByInstance) -> _EvictionsByInstance:
        """Nodes whose pods have to go now."""
        prepared = {
            instance: self._prepare_eviction(instance, instance_messages)
            for instance, instance_messages in messages.items()
        }
        return {instance: one for instance, one in prepared.items() if one}

    def _prepare_eviction(self, instance_id: str, messages: list[InterruptionMessage]) -> NodeEarlyEviction | None:
        try:
            interrupted_node = self._nodes.find_interrupted_node(instance_id, messages)
            return self._early_evictions.begin_for(interrupted_node) if interrupted_node else None
        except Exception as error:
            log.error("node not evacuated; its drain does it", instance=instance_id, error=str(error)[:300])
            return None

    async def _process_messages(
        self, found: Sequence[QueueMessage], messages: _MessagesByInstance, evictions: _EvictionsByInstance
    ) -> None:
        outcomes = await self._notify_nodes(messages, evictions)
        self._update_availability(outcomes)
        done = [queue_message for queue_message in found if self._is_done(queue_message, outcomes)]
        if done:
            await self._delete_messages(done)
        if not self._unavailable_pause:
            self._metrics.record_read("queue")

    async def _notify_nodes(
        self, messages: _MessagesByInstance, evictions: _EvictionsByInstance
    ) -> dict[str, _Outcome]:
        outcomes = await asyncio.gather(
            *(
                self._notify_node(one, instance_messages, evictions.get(one))
                for one, instance_messages in messages.items()
            )
        )
        return dict(zip(messages, outcomes, strict=True))

    async def _notify_node(
        self, instance_id: str, messages: list[InterruptionMessage], eviction: NodeEarlyEviction | None
    ) -> _Outcome:
        """What goes wrong with one keeps no other from being told."""
        try:
            return await self._nodes.notify(instance_id, messages, eviction.evicted_pods if eviction else ())
        except Exception as error:
            log.error("message not handled; it comes again", instance=instance_id, error=str(error)[:300])
            return "failed"

    def _update_availability(self, outcomes: dict[str, _Outcome]) -> None:
        """Temporal may be away for all, or busy for one: only where nobody was told there is nobody."""
        found, now = set(outcomes.values()), self._now()
        if "later" in found and "notified" not in found:
            self._last_undelivered_at = now
            self._unavailable_pause = min(
                UNAVAILABLE_MAX_PAUSE, max(UNAVAILABLE_FIRST_PAUSE, 2 * self._unavailable_pause)
            )
        elif "notified" in found or self._last_undelivered_at is None or now - self._last_undelivered_at >= FORGOTTEN:
            self._last_undelivered_at, self._unavailable_pause = None, 0.0

    def _is_done(self, message: QueueMessage, outcomes: dict[str, _Outcome]) -> bool:
        """Every node that it speaks of knows, or there is none. Says why it was for nobody. However old it is, a node
        of ours that is without a workflow, after an outage or a lost store, hears it once it has one."""
        if message.parsed.dropped:
            log.info("message dropped", id=message.id, why=message.parsed.dropped, said=message.parsed.why)
            self._metrics.record_dropped(message.parsed.dropped)
            return True
        found = {outcomes[entry.instance_id] for entry in message.parsed.interruptions}
        if "failed" in found and self._now() - message.first_received >= FAILED_FOR:
            log.error("message deleted after its handling failed again and again", id=message.id)
            self._metrics.record_dropped("failed")
            return True
        may_be_launching = self._now() - message.first_received < TRIED_FOR
        if found & {"later", "no workflow", "failed"} or ("not yet" in found and may_be_launching):
            return False
        if "notified" not in found:
            why = next((one for one in ("repeated", "over") if one in found), "foreign")
            self._metrics.record_dropped(why)
        return True

    async def _delete_messages(self, done: Sequence[QueueMessage]) -> None:
        """What is not deleted comes again, as a repeat."""
        try:
            deleted = await self._queue.delete(self._name, [message.receipt for message in done])
        except Fault as fault:
            log.error("messages not deleted; they come again", queue=self._name, count=len(done), fault=str(fault))
            return
        self._metrics.record_deleted(deleted)


async def _publish_evictions(evictions: _EvictionsByInstance) -> None:
    for one in evictions.values():
        await one.publish_events()


def _is_deferrable(message: QueueMessage) -> bool:
    return all(entry.message.kind in GATHERABLE_KINDS for entry in message.parsed.interruptions)


def _group_by_instance(found: Sequence[QueueMessage]) -> _MessagesByInstance:
    by_instance: _MessagesByInstance = {}
    for message in found:
        for entry in message.parsed.interruptions:
            messages = by_instance.setdefault(entry.instance_id, [])
            if entry.message not in messages:
                messages.append(entry.message)
    return by_instance
