"""Waiting without a clock: on a busy machine, milliseconds may pass before other tasks run."""

import asyncio


async def run_pending_tasks(count: int = 200) -> None:
    """Let tasks run that need no timer, thread or socket, until they wait."""
    for _ in range(count):
        await asyncio.sleep(0)
