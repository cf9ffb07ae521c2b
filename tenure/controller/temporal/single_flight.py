"""Calls that join a running call with the same key."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tenure.model.errors import TryLater

T = TypeVar("T")


class SingleFlight:
    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    async def run(self, key: str, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Join the call that runs for this key, or begin it. Raises TryLater if it is closed meanwhile."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(begin())
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        try:
            result: T = await asyncio.shield(task)
        except asyncio.CancelledError as cancelled:
            if task.cancelled():
                raise TryLater("the watch moved to another process meanwhile") from cancelled
            raise
        return result

    async def close(self) -> None:
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
