"""Timers and bounded waits of workflows."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow

MIN_TIMER = timedelta(seconds=1)
STOP_TIMEOUT = timedelta(seconds=10)


def time_until(at: datetime) -> timedelta:
    """At least MIN_TIMER, since due times are often only milliseconds apart. A timer for each would double the history
    events, and the second timer could be cancelled while it fires."""
    return max(at - workflow.now(), MIN_TIMER)


async def wait_at_most(timeout: timedelta, condition: Callable[[], bool], summary: str) -> None:
    """Return when `condition` holds, or after `timeout`. No timer starts if it already holds.

    `summary`: shown in the Temporal UI.
    """
    if not condition():
        with suppress(TimeoutError):
            await workflow.wait_condition(condition, timeout=timeout, timeout_summary=summary)


async def stop_background_tasks(tasks: Sequence[asyncio.Task[None]], is_writing: Callable[[], bool]) -> None:
    """Cancel the tasks before continue-as-new. Wait up to STOP_TIMEOUT for a running write; the next run repeats a
    write that has not ended. Wait as long for the tasks: one that signals another workflow may ignore its cancellation.
    """
    await wait_at_most(STOP_TIMEOUT, lambda: not is_writing(), "the write that is running")
    for task in tasks:
        task.cancel()
    stopped = asyncio.gather(*tasks, return_exceptions=True)
    await wait_at_most(STOP_TIMEOUT, stopped.done, "the end of the background tasks")


class WakeupTimer:
    """A timer that continues between the waits of a workflow, for workflows that signals wake often.

    `wait_condition` with a timeout cancels its timer after each signal and starts another one. That costs two history
    events, and is a race with a timer that is about to fire. This timer is replaced only by an earlier one. A later
    time is set when it has fired.
    """

    def __init__(self) -> None:
        self._fires_at: datetime | None = None
        self._timer: asyncio.Task[None] | None = None

    async def wait_until(self, condition: Callable[[], bool], at: datetime | None, summary: str) -> None:
        """Return when `condition` holds or the timer fires, at `at` or earlier.

        `at`: None starts no timer. `summary`: shown in the Temporal UI.
        """
        if at is not None and at <= workflow.now():
            return
        self._start(at, summary)
        await workflow.wait_condition(lambda: condition() or self._has_fired())
        if self._has_fired():
            self._fires_at = self._timer = None

    def _start(self, at: datetime | None, summary: str) -> None:
        if at is None or (self._fires_at is not None and self._fires_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at = at
        self._timer = asyncio.create_task(workflow.sleep(time_until(at), summary=summary))

    def _has_fired(self) -> bool:
        return self._timer is not None and self._timer.done()
