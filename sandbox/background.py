"""A thread with an event loop that lives as long as the sandbox.

The sandbox's children are tied to the thread that spawned them, and its proxy needs a loop that no test blocks; so both
live here, and `world.py` can be used from plain code and from any event loop alike.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Starts at once; a daemon, so that it never keeps the interpreter."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it in the thread and wait. An interrupt of the caller cancels the work, and waits for its end."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                asyncio.run_coroutine_threadsafe(_settle(), self._loop).result()
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _settle() -> None:
    """Until everything that was cancelled has cleaned up after itself."""
    others = asyncio.all_tasks() - {task for task in (asyncio.current_task(),) if task}
    cancelled = [task for task in others if task.cancelling()]
    if cancelled:
        await asyncio.wait(cancelled, timeout=10)


async def together(*works: Coroutine[Any, Any, None]) -> None:
    """All at once; the first failure cancels the rest and is raised as it is, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
