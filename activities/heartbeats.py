"""Heartbeats beside a piece of work, so that a killed worker's activity is soon tried elsewhere."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity

EVERY = 1.5
"""Seconds; less than a third of the shortest heartbeat time-out."""


@asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Send a heartbeat now and every second or so until the block ends."""
    activity.heartbeat()
    beating = asyncio.create_task(_beat())
    try:
        yield
    finally:
        beating.cancel()


async def _beat() -> None:
    while True:
        await asyncio.sleep(EVERY)
        activity.heartbeat()
