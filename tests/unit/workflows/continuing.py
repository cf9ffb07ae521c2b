"""A run that continues as new in the middle of a test."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from tests.support.workflows.eventually import LOOK_EVERY, eventually, idle, rolled

MEANWHILE = 12
"""Events: more than a workflow task adds that begins while its history is counted."""
Told = Callable[[int], Awaitable[None]]


async def continued(handle: WorkflowHandle[Any, Any], monkeypatch: pytest.MonkeyPatch, tell: Told) -> None:
    """Until its run has continued as new, `tell` makes its history grow, told how often it was called.

    The limit of a run's length lies beyond what the history holds: a worker that replays it, as one does on a busy
    machine, takes the decisions that were taken. A run does not end while it is told something: in the end nothing is.
    """
    await idle(handle)
    events = (await handle.fetch_history()).events
    with monkeypatch.context() as for_now:
        for_now.setattr("workflows.activity_options.ROLL_AT_EVENTS", len(events) + MEANWHILE)
        for number in range(MEANWHILE):
            if await rolled(handle._client, handle):
                return
            await tell(number)
            await asyncio.sleep(LOOK_EVERY)
        await eventually(lambda: rolled(handle._client, handle))
