"""A run that continues as new in the middle of a test."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from tests.support.workflows.eventually import POLL_INTERVAL_SECONDS, has_continued_as_new, wait_until, wait_until_idle

MEANWHILE = 12
"""Events: more than a workflow task adds that begins while its history is counted."""
StateChange = Callable[[int], Awaitable[None]]


async def wait_until_continued_as_new(
    handle: WorkflowHandle[Any, Any], monkeypatch: pytest.MonkeyPatch, change_state: StateChange
) -> None:
    """Until its run has continued as new, `change_state` makes its history grow, told how often it was called.

    The limit of a run's length lies beyond what the history holds: a worker that replays it, as one does on a busy
    machine, takes the decisions that were taken. A run does not end while it is told something: in the end nothing is.
    """
    await wait_until_idle(handle)
    events = (await handle.fetch_history()).events
    with monkeypatch.context() as for_now:
        for_now.setattr("workflows.activity_options.CONTINUE_AS_NEW_AT_EVENTS", len(events) + MEANWHILE)
        for number in range(MEANWHILE):
            if await has_continued_as_new(handle._client, handle):
                return
            await change_state(number)
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        await wait_until(lambda: has_continued_as_new(handle._client, handle))
