"""Heartbeats beside a piece of work, so that a killed worker's activity is soon tried elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity

EVERY = 1.5
"""Seconds; less than a third of the shortest heartbeat time-out. With one, an activity hears that it is cancelled."""
SELDOM = 8.0
"""Of hundreds at once that nobody stops; they go with `workflows.options.SELDOM`. Each is a write of Temporal's."""


@asynccontextmanager
async def heartbeating(told: Callable[[], tuple[Any, ...]] = tuple, *, every: float = EVERY) -> AsyncIterator[None]:
    """Send a heartbeat now and `every` so many seconds until the end; `told` is what the next try gets to know."""
    activity.heartbeat(*told())
    beating = asyncio.create_task(_beat(told, every))
    try:
        yield
    finally:
        beating.cancel()


async def _beat(told: Callable[[], tuple[Any, ...]], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        activity.heartbeat(*told())
