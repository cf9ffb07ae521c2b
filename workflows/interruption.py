"""The Interruption workflow keeps the activities that read AWS interruption messages running, and reports their state.

There is one per cluster. Each source (queue, instance status) has its own activity in the process that hosts the watch,
so neither waits for the other. A read failure is reported, and retried with backoff. The NodeClaim workflows report the
outcome of each message.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeout

from activities.interruption.activities import InterruptionActivities
from tenure.model.interruption.records import (
    InstanceStatusRequest,
    InterruptionState,
    QueueSetting,
    SourceReadResult,
    SourceState,
)
from workflows import current_details, ids
from workflows.activity_options import READ, READ_RECOVERED_AFTER, is_continue_as_new_due, with_summary
from workflows.current_details import IgnoresCancellation, publish_details

MAX_PAUSE_SECONDS = 60
NO_HOST = "no worker hosts the watch at present"

Source = Literal["messages", "statuses"]


@workflow.defn(name="Interruption")
class InterruptionWorkflow(IgnoresCancellation):
    how_to_stop = "scale the Deployment of the worker to zero, or unset INTERRUPTION_QUEUE"

    @workflow.init
    def __init__(self, state: InterruptionState) -> None:
        self._state = state

    @workflow.run
    async def run(self, state: InterruptionState) -> None:
        self._set_current_details()
        sources = [asyncio.create_task(self._consume_queue()), asyncio.create_task(self._poll_instance_status())]
        continue_as_new_task = asyncio.create_task(workflow.wait_condition(is_continue_as_new_due))
        try:
            ended, _ = await workflow.wait([*sources, continue_as_new_task], return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            _cancel_tasks(*sources, continue_as_new_task)
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(self._state)

    @workflow.signal(description="From a worker at its start: the queue to read")
    def set_queue(self, request: QueueSetting) -> None:
        """The settings of a worker that has just started replace those of earlier workers."""
        if request.queue != self._state.queue:
            self._update_state(queue=request.queue, messages=SourceState())

    @workflow.query(description="The complete state of the workflow")
    def state(self) -> InterruptionState:
        return self._state

    async def _consume_queue(self) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self._state.queue))
            await self._consume_until_renamed(self._state.queue)

    async def _consume_until_renamed(self, queue: str) -> None:
        """Read this queue once, until the activity ends or the queue setting changes."""
        reading = asyncio.create_task(self._read_source("messages", lambda: self._read_queue(queue)))
        renamed = asyncio.create_task(workflow.wait_condition(lambda: self._state.queue != queue))
        try:
            ended, _ = await workflow.wait([reading, renamed], return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            _cancel_tasks(reading, renamed)

    async def _poll_instance_status(self) -> None:
        while True:
            await self._read_source("statuses", self._read_status)

    async def _read_source(self, source: Source, read: Callable[[], Awaitable[SourceReadResult]]) -> None:
        """Run one read activity, and pause after a fault."""
        reading = asyncio.ensure_future(read())
        try:
            if self._source_state(source).failing_since is not None:
                await self._watch_recovery(source, reading)
            ended = await reading
        finally:
            _cancel_tasks(reading)
        if not ended.fault:
            return self._mark_recovered(source)
        now, before = workflow.now(), self._source_state(source)
        tries = before.failed_attempts + 1
        failed = SourceState(
            failing_since=before.failing_since or now, failed_attempts=tries, fault=ended.fault, fault_at=now
        )
        self._update_state(**{source: failed})
        longest = 5 if ended.fault == NO_HOST else MAX_PAUSE_SECONDS
        await workflow.sleep(min(longest, 2.0 ** min(tries - 1, 6)), summary=ended.fault[:100])

    async def _watch_recovery(self, source: Source, reading: "asyncio.Future[SourceReadResult]") -> None:
        try:
            await workflow.wait_condition(
                reading.done, timeout=READ_RECOVERED_AFTER, timeout_summary="whether it is read again"
            )
        except TimeoutError:
            self._mark_recovered(source)

    async def _read_queue(self, queue: str) -> SourceReadResult:
        options = self._read_options(f"read queue {queue}")
        return await _reading_result(
            workflow.execute_activity_method(InterruptionActivities.consume_queue, QueueSetting(queue=queue), **options)
        )

    async def _read_status(self) -> SourceReadResult:
        request = InstanceStatusRequest(open_interruptions=self._state.open_interruptions, last=self._state.status_read)
        options = self._read_options("read instance status every minute")
        ended = await _reading_result(
            workflow.execute_activity_method(InterruptionActivities.read_instance_status, request, **options)
        )
        if not ended.fault:
            self._update_state(open_interruptions=ended.open_interruptions, status_read=ended.last)
        return ended

    def _read_options(self, summary: str) -> Any:
        return {**with_summary(READ, summary), "task_queue": ids.plan_queue(self._state.cluster)}

    def _source_state(self, source: Source) -> SourceState:
        return self._state.messages if source == "messages" else self._state.statuses

    def _mark_recovered(self, source: Source) -> None:
        if self._source_state(source).failing_since is not None:
            self._update_state(
                **{source: self._source_state(source).model_copy(update={"failing_since": None, "failed_attempts": 0})}
            )

    def _update_state(self, **fields: Any) -> None:
        self._state = self._state.model_copy(update=fields)
        self._set_current_details()

    def _set_current_details(self) -> None:
        publish_details(current_details.render_interruption(self._state))


def _cancel_tasks(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel without waiting, since a run that the worker evicts from its cache may not wait here."""
    for task in tasks:
        task.add_done_callback(_retrieve_exception)
        task.cancel()


def _retrieve_exception(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()


async def _reading_result(reading: Awaitable[SourceReadResult]) -> SourceReadResult:
    """Return a permanent failure, or a task queue without pollers, as a value."""
    try:
        return await reading
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        is_timed_out = isinstance(error.cause, ActivityTimeout)
        return SourceReadResult(fault=NO_HOST if is_timed_out else str(error.cause or error)[:300])
