"""Interruption: keeps the reading of what AWS says of instances alive, and says how it goes.

One per cluster. Each source, the queue and instances' status, has an activity of its own in the process that hosts the
watch, so that neither waits for the other. What cannot be read is a value here: it is said, and tried again after
pauses that grow. What became of each message is told by the nodes' own workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeout

from activities.interruption.activities import InterruptionActivities
from tenure.model.interruption.records import (
    InterruptionState,
    QueueAsked,
    QueueNamed,
    ReadingEnded,
    SourceState,
    StatusAsked,
)
from workflows import current_details, ids
from workflows.activity_options import READ, READ_WELL_AFTER, ROLL_AT_EVENTS, named

LONGEST_PAUSE = 60
"""Seconds."""
NOBODY = "no worker hosts the watch at present"

Source = Literal["messages", "statuses"]


@workflow.defn
class InterruptionWorkflow:
    @workflow.init
    def __init__(self, state: InterruptionState) -> None:
        self._state = state

    @workflow.run
    async def run(self, state: InterruptionState) -> None:
        self._describe()
        sources = [asyncio.create_task(self._keep_queue()), asyncio.create_task(self._keep_status())]
        rolling = asyncio.create_task(workflow.wait_condition(self._roll_due))
        try:
            ended, _ = await workflow.wait([*sources, rolling], return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            _given_up(*sources, rolling)
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(self._state)

    @workflow.signal(description="From a worker at its start: the queue to read")
    def queue_named(self, named: QueueNamed) -> None:
        """A worker started; its settings are newer than those of workers before it."""
        if named.queue != self._state.queue:
            self._change(queue=named.queue, messages=SourceState())

    @workflow.query(description="All that the workflow knows")
    def state(self) -> InterruptionState:
        return self._state

    async def _keep_queue(self) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self._state.queue))
            await self._until_renamed(self._state.queue)

    async def _until_renamed(self, queue: str) -> None:
        """One stay at this queue; cut short when it is another that is to be read."""
        reading = asyncio.create_task(self._read("messages", lambda: self._read_queue(queue)))
        renamed = asyncio.create_task(workflow.wait_condition(lambda: self._state.queue != queue))
        try:
            ended, _ = await workflow.wait([reading, renamed], return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            _given_up(reading, renamed)

    async def _keep_status(self) -> None:
        while True:
            await self._read("statuses", self._read_status)

    async def _read(self, source: Source, read: Callable[[], Awaitable[ReadingEnded]]) -> None:
        """One stay at a source, and the pause that follows a fault."""
        reading = asyncio.ensure_future(read())
        try:
            if self._source(source).failing_since is not None:
                await self._watch_recovery(source, reading)
            ended = await reading
        finally:
            _given_up(reading)
        if not ended.fault:
            return self._well(source)
        now, before = workflow.now(), self._source(source)
        tries = before.tries + 1
        failed = SourceState(failing_since=before.failing_since or now, tries=tries, fault=ended.fault, fault_at=now)
        self._change(**{source: failed})
        longest = 5 if ended.fault == NOBODY else LONGEST_PAUSE
        await workflow.sleep(min(longest, 2.0 ** min(tries - 1, 6)), summary=ended.fault[:100])

    async def _watch_recovery(self, source: Source, reading: "asyncio.Future[ReadingEnded]") -> None:
        try:
            await workflow.wait_condition(
                reading.done, timeout=READ_WELL_AFTER, timeout_summary="whether it is read again"
            )
        except TimeoutError:
            self._well(source)

    async def _read_queue(self, queue: str) -> ReadingEnded:
        options = self._options(f"read queue {queue}")
        return await _ended(
            workflow.execute_activity_method(InterruptionActivities.read_queue, QueueAsked(queue=queue), **options)
        )

    async def _read_status(self) -> ReadingEnded:
        asked = StatusAsked(told=self._state.told, last=self._state.status_read)
        options = self._options("read the status of instances every minute")
        ended = await _ended(
            workflow.execute_activity_method(InterruptionActivities.read_instance_status, asked, **options)
        )
        if not ended.fault:
            self._change(told=ended.told, status_read=ended.last)
        return ended

    def _options(self, summary: str) -> Any:
        return {**named(READ, summary), "task_queue": ids.plan_queue(self._state.cluster)}

    def _source(self, source: Source) -> SourceState:
        return self._state.messages if source == "messages" else self._state.statuses

    def _well(self, source: Source) -> None:
        if self._source(source).failing_since is not None:
            self._change(**{source: self._source(source).model_copy(update={"failing_since": None, "tries": 0})})

    def _roll_due(self) -> bool:
        info = workflow.info()
        return info.is_continue_as_new_suggested() or info.get_current_history_length() >= ROLL_AT_EVENTS

    def _change(self, **fields: Any) -> None:
        self._state = self._state.model_copy(update=fields)
        self._describe()

    def _describe(self) -> None:
        workflow.set_current_details(current_details.of_interruption(self._state))


def _given_up(*tasks: "asyncio.Future[Any]") -> None:
    """Not waited for: a run that a worker forgets gets here too, and may not wait any more."""
    for task in tasks:
        task.add_done_callback(_unheard)
        task.cancel()


def _unheard(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()


async def _ended(reading: Awaitable[ReadingEnded]) -> ReadingEnded:
    """What no retry helps, and that nobody polls the queue, as values."""
    try:
        return await reading
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        waited = isinstance(error.cause, ActivityTimeout)
        return ReadingEnded(fault=NOBODY if waited else str(error.cause or error)[:300])
