"""Batches the requests of many callers into one call.

A window closes after `idle` seconds without a request, after `longest` seconds, or at `size` keys.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Batcher(Generic[K, R]):
    """`run` returns the results of many keys; callers of a missing key get None."""

    def __init__(
        self, run: Callable[[Sequence[K]], Awaitable[Mapping[K, R]]], *, idle: float, longest: float, size: int
    ) -> None:
        self._run, self._idle, self._longest, self._size = run, idle, longest, size
        self._waiting: dict[K, asyncio.Future[R | None]] = {}
        self._opened = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def fetch(self, key: K) -> R | None:
        """The result of one key. Callers with the same key in one window share it; a cancelled caller does not affect
        the others."""
        loop = asyncio.get_running_loop()
        future = self._waiting.get(key)
        if future is None:
            if not self._waiting:
                self._opened = loop.time()
            future = self._waiting[key] = loop.create_future()
        self._set_timer(loop)
        return await asyncio.shield(future)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if len(self._waiting) >= self._size:
            self._close_window()
            return
        due = min(loop.time() + self._idle, self._opened + self._longest)
        self._timer = loop.call_at(due, self._close_window)

    def _close_window(self) -> None:
        self._timer = None
        batch, self._waiting = self._waiting, {}
        task = asyncio.get_running_loop().create_task(self._run_batch(batch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run_batch(self, batch: Mapping[K, asyncio.Future[R | None]]) -> None:
        try:
            results = await self._run(list(batch))
        except BaseException as error:
            for future in batch.values():
                if not future.done():
                    future.set_exception(error)
                    # Marks the error as retrieved, because the caller may be cancelled.
                    future.exception()
            if isinstance(error, Exception):
                return
            raise
        for key, future in batch.items():
            if not future.done():
                future.set_result(results.get(key))
