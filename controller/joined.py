"""Work that goes on when whoever asked for it is gone: a second asking joins the first, and nothing is done twice."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from model.faults import TryLater

T = TypeVar("T")


class Joined:
    """By key."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    async def run(self, key: str, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Raises TryLater when it was closed meanwhile."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(begin())
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        try:
            answer: T = await asyncio.shield(task)
        except asyncio.CancelledError as cancelled:
            if task.cancelled():
                raise TryLater("the watch moved to another process meanwhile") from cancelled
            raise
        return answer

    async def close(self) -> None:
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
