"""The queue consumer: polls SQS, groups messages by instance, notifies node workflows, and deletes processed messages.

Pods with little time are evicted before their workflow is notified. A poller deletes the messages of a poll before it
polls again, which bounds memory. While polls are full, more pollers run. In such a burst, workflows of nodes with early
evictions are notified after the evictions of all nodes, and deferrable messages are batched by node. A message that
cannot be delivered stays in the queue, and SQS delivers it again.
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

FULL_POLL_SIZE: Final = 10
"""Messages in a full response, after which the queue probably has more."""
MAX_POLLS: Final = 8
"""Concurrent polls."""
POLL_WAIT_SECONDS: Final = 20
"""Seconds that the first poller waits for a message; extra pollers wait less."""
EXTRA_POLL_WAIT_SECONDS: Final = 1
UNKNOWN_INSTANCE_RETENTION: Final = timedelta(minutes=1)
"""How long a message about an unknown instance is kept in the queue, since its launch may not be recorded yet."""
FAILED_MESSAGE_RETENTION: Final = timedelta(minutes=30)
"""How long a message whose handling fails is retried (about 90 receives) before it is deleted."""
UNAVAILABLE_FIRST_PAUSE: Final = 1.0
UNAVAILABLE_MAX_PAUSE: Final = 15.0
"""Seconds between polls while no workflow can be notified: a redrive policy may move a message that is received too
often to a dead-letter queue."""
DELIVERY_RECOVERY: Final = timedelta(seconds=45)
"""Time since the last undelivered message after which delivery counts as recovered. SQS would have delivered the
message again by then."""

MAX_DEFERRED_POLLS: Final = 500
"""Polls, of ten messages each, whose notifications may be deferred at the same time."""
MAX_DEFERRAL_SECONDS: Final = 15.0
"""Maximum seconds that notifications are deferred; the visibility timeout is 20 seconds."""
MAX_BATCH_SIZE: Final = 5000
"""Messages in one batch."""
MAX_BATCH_SECONDS: Final = 8.0
"""Seconds that a batch waits for more messages while polls are full."""
DEFERRABLE_KINDS: Final = frozenset({"scheduledChange", "rebalanceRecommendation"})
"""Kinds that AWS announces hours ahead, or that may require no action."""
CHECK_EVERY_SECONDS: Final = 0.25
BURST_EVICTION_SECONDS: Final = 60.0
"""Seconds for the evictions of one node in a burst. Its workflow is notified earlier, and drains it as well."""

_Outcome = NotifyOutcome | Literal["failed"]
_MessagesByInstance = dict[str, list[InterruptionMessage]]
_EvictionsByInstance = dict[str, NodeEarlyEviction]
"""By instance ID."""


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
        self._deferred_tasks: set[asyncio.Task[None]] = set()
        """Polls whose messages are processed later."""
        self._running_evictions: set[asyncio.Future[Any]] = set()
        """Early evictions that must run before `_deferred_tasks`."""
        self._batch: list[QueueMessage] = []
        self._batch_task: asyncio.Task[None] | None = None
        self._unavailable_pause = 0.0
        """Seconds of the last pause without deliverable messages; 0 if messages can be delivered."""
        self._last_undelivered_at: datetime | None = None

    async def run(self) -> None:
        """Run until cancelled. Raises Fault if the queue cannot be read."""
        try:
            while True:
                await self._poll(POLL_WAIT_SECONDS)
                if self._unavailable_pause:
                    await self._sleep(self._unavailable_pause)
        finally:
            running = (*self._extra_polls, *self._deferred_tasks)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _poll_extra(self) -> None:
        """Poll until the queue is empty or messages cannot be delivered."""
        try:
            while await self._poll(EXTRA_POLL_WAIT_SECONDS) and not self._unavailable_pause:
                pass
        except Exception as error:
            log.warning("extra poll failed", queue=self._name, error=str(error)[:300])

    async def _poll(self, wait: int) -> int:
        """Poll once. Returns the number of messages."""
        found = await retry_transient(lambda: self._queue.receive(self._name, wait=wait), sleep=self._sleep)
        if len(found) >= FULL_POLL_SIZE and len(self._extra_polls) < MAX_POLLS - 1 and not self._unavailable_pause:
            self._start_task(self._extra_polls, self._poll_extra())
        for message in found:
            self._metrics.record_received(message)
        messages = _group_by_instance(found)
        evictions = self._prepare_evictions(messages)
        if evictions and self._extra_polls and len(self._deferred_tasks) < MAX_DEFERRED_POLLS:
            process = self._process_guarded(self._process_deferred, found, messages, evictions)
            self._start_task(self._deferred_tasks, process)
        elif self._extra_polls and len(self._batch) < MAX_BATCH_SIZE and all(_is_deferrable(one) for one in found):
            self._add_to_batch(found)
        else:
            await self._process_guarded(self._process_immediately, found, messages, evictions)
        return len(found)

    async def _process_guarded(
        self,
        process: Callable[[Sequence[QueueMessage], _MessagesByInstance, _EvictionsByInstance], Awaitable[None]],
        found: Sequence[QueueMessage],
        messages: _MessagesByInstance,
        evictions: _EvictionsByInstance,
    ) -> None:
        """An error leaves the messages in the queue, and polls continue."""
        try:
            await process(found, messages, evictions)
        except Exception as error:
            log.error("messages not handled, SQS delivers them again", queue=self._name, error=str(error)[:300])

    async def _process_immediately(
        self, found: Sequence[QueueMessage], messages: _MessagesByInstance, evictions: _EvictionsByInstance
    ) -> None:
        await asyncio.gather(*(one.run() for one in evictions.values()))
        await self._process_messages(found, messages, evictions)
        await _publish_evictions(evictions)

    def _start_task(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="queue-poll")
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def _add_to_batch(self, found: Sequence[QueueMessage]) -> None:
        self._batch.extend(found)
        if self._batch_task is None or self._batch_task.done():
            self._batch_task = self._start_task(self._deferred_tasks, self._process_batches())

    async def _process_batches(self) -> None:
        """Process batches until none is left."""
        while self._batch:
            await self._wait_while(
                lambda: bool(self._extra_polls) and len(self._batch) < MAX_BATCH_SIZE, MAX_BATCH_SECONDS
            )
            found, self._batch = self._batch, []
            await self._process_guarded(self._process_messages, found, _group_by_instance(found), {})

    async def _wait_while(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait while `condition` holds, at most `seconds`."""
        waited, clock = 0.0, asyncio.get_running_loop().time
        until = clock() + seconds
        while condition() and waited < seconds and clock() < until:
            await self._sleep(CHECK_EVERY_SECONDS)
            waited += CHECK_EVERY_SECONDS

    async def _process_deferred(
        self, found: Sequence[QueueMessage], messages: _MessagesByInstance, evictions: _EvictionsByInstance
    ) -> None:
        """Process messages after the evictions of all nodes, and before the visibility timeout. Polls do not wait for
        each other, so that all nodes are tainted before the evictions delay every later request."""
        running = asyncio.gather(*(one.run(BURST_EVICTION_SECONDS) for one in evictions.values()))
        self._running_evictions.add(running)
        running.add_done_callback(self._running_evictions.discard)
        try:
            await self._wait_while(lambda: bool(self._extra_polls or self._running_evictions), MAX_DEFERRAL_SECONDS)
            await self._process_messages(found, messages, evictions)
            await running
            await _publish_evictions(evictions)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _prepare_evictions(self, messages: _MessagesByInstance) -> _EvictionsByInstance:
        """Early evictions of the nodes whose pods have little time."""
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
            log.error("early eviction failed, drain takes over", instance=instance_id, error=str(error)[:300])
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
        """A failure for one node does not affect others."""
        try:
            return await self._nodes.notify(instance_id, messages, eviction.evicted_pods if eviction else ())
        except Exception as error:
            log.error("message processing failed, SQS delivers it again", instance=instance_id, error=str(error)[:300])
            return "failed"

    def _update_availability(self, outcomes: dict[str, _Outcome]) -> None:
        """Temporal counts as unavailable only if no workflow could be notified, since a single one may be busy."""
        found, now = set(outcomes.values()), self._now()
        if "later" in found and "notified" not in found:
            self._last_undelivered_at = now
            self._unavailable_pause = min(
                UNAVAILABLE_MAX_PAUSE, max(UNAVAILABLE_FIRST_PAUSE, 2 * self._unavailable_pause)
            )
        elif (
            "notified" in found
            or self._last_undelivered_at is None
            or now - self._last_undelivered_at >= DELIVERY_RECOVERY
        ):
            self._last_undelivered_at, self._unavailable_pause = None, 0.0

    def _is_done(self, message: QueueMessage, outcomes: dict[str, _Outcome]) -> bool:
        """True if every affected workflow has the message, or there is none. Counts dropped messages by reason. A
        message for a node without a workflow, after an outage or a lost database, is kept until there is one."""
        if message.parsed.dropped:
            log.info("message dropped", id=message.id, why=message.parsed.dropped, detail=message.parsed.why)
            self._metrics.record_dropped(message.parsed.dropped)
            return True
        found = {outcomes[entry.instance_id] for entry in message.parsed.interruptions}
        if "failed" in found and self._now() - message.first_received >= FAILED_MESSAGE_RETENTION:
            log.error("message deleted after repeated failures", id=message.id)
            self._metrics.record_dropped("failed")
            return True
        may_be_launching = self._now() - message.first_received < UNKNOWN_INSTANCE_RETENTION
        if found & {"later", "no workflow", "failed"} or ("not yet" in found and may_be_launching):
            return False
        if "notified" not in found:
            why = next((one for one in ("repeated", "over") if one in found), "foreign")
            self._metrics.record_dropped(why)
        return True

    async def _delete_messages(self, done: Sequence[QueueMessage]) -> None:
        """A message that is not deleted is delivered again, and ignored as repeated."""
        try:
            deleted = await self._queue.delete(self._name, [message.receipt for message in done])
        except Fault as fault:
            log.error(
                "message deletion failed, SQS delivers them again", queue=self._name, count=len(done), fault=str(fault)
            )
            return
        self._metrics.record_deleted(deleted)


async def _publish_evictions(evictions: _EvictionsByInstance) -> None:
    for one in evictions.values():
        await one.publish_events()


def _is_deferrable(message: QueueMessage) -> bool:
    return all(entry.message.kind in DEFERRABLE_KINDS for entry in message.parsed.interruptions)


def _group_by_instance(found: Sequence[QueueMessage]) -> _MessagesByInstance:
    by_instance: _MessagesByInstance = {}
    for message in found:
        for entry in message.parsed.interruptions:
            messages = by_instance.setdefault(entry.instance_id, [])
            if entry.message not in messages:
                messages.append(entry.message)
    return by_instance
