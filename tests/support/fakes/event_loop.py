"""Waiting without a clock: on a busy machine a few milliseconds may be over before any other task had its turn."""

import asyncio


async def run_pending_tasks(count: int = 200) -> None:
    """Tasks that need no timer, thread or socket have gone on meanwhile until they wait for something."""
    for _ in range(count):
        await asyncio.sleep(0)
