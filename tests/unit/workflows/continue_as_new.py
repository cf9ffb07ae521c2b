"""Make a run continue as new in the middle of a test."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from tests.support.workflows.eventually import POLL_INTERVAL_SECONDS, has_continued_as_new, wait_until, wait_until_idle

MEANWHILE = 12
"""Events, more than one workflow task adds while the history is counted."""
StateChange = Callable[[int], Awaitable[None]]


async def wait_until_continued_as_new(
    handle: WorkflowHandle[Any, Any], monkeypatch: pytest.MonkeyPatch, change_state: StateChange
) -> None:
    """Call `change_state` with the number of the call, so that the history grows, until the run continues as new.

    The event limit is set above the current history length, so a worker that replays the run takes the same
    decisions. The calls stop in the end, because a run that keeps receiving signals does not continue as new.
    """
    await wait_until_idle(handle)
    events = (await handle.fetch_history()).events
    with monkeypatch.context() as patch:
        patch.setattr("workflows.activity_options.CONTINUE_AS_NEW_AT_EVENTS", len(events) + MEANWHILE)
        for number in range(MEANWHILE):
            if await has_continued_as_new(handle._client, handle):
                return
            await change_state(number)
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        await wait_until(lambda: has_continued_as_new(handle._client, handle))
