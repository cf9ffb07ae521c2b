"""Timers of workflows."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow

MIN_TIMER = timedelta(seconds=1)


def time_until(at: datetime) -> timedelta:
    """At least MIN_TIMER, since due times often lie milliseconds apart. A timer for each would cost twice the events,
    and the second could be cancelled while it fires."""
    return max(at - workflow.now(), MIN_TIMER)


class WakeupTimer:
    """A timer that outlives the waits of a workflow, for workflows that signals wake often.

    `wait_condition` with a timeout cancels its timer at each signal and starts another: two events, and a race with
    a timer that is about to fire. This timer is replaced only by an earlier one. A later wake-up time waits for it to
    fire, and is set then."""

    def __init__(self) -> None:
        self._fires_at: datetime | None = None
        self._timer: asyncio.Task[None] | None = None

    async def wait_until(self, condition: Callable[[], bool], at: datetime | None, summary: str) -> None:
        """Return when `condition` holds or the timer fires, which is at `at` or earlier. `at`: None for no timer;
        `summary`: shown in the Temporal UI."""
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
