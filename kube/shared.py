"""One live read for many who ask at once, without ever answering from before they asked.

A hundred nodes that register together need one list of Nodes, not a hundred.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedRead(Generic[T]):
    """Callers that come while a read is running share the next one, which starts after they asked."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The answer of a read that began no earlier than this call; raises what the read raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
        # Shielded: one caller that is cancelled must not take the answer from the others.
        return await asyncio.shield(self._next)

    async def _after(self, before: "asyncio.Task[T] | None") -> T:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._read()
