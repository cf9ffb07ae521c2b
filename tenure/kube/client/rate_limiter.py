"""Limits requests to the API server: `KUBE_CLIENT_QPS`, with bursts of `KUBE_CLIENT_BURST`, and some at a time.

Mass requests, such as the drains of an interruption burst, have their own queue. The queues take turns, so that mass
requests get at most every other slot while others wait (`tenure/model/base.py`). A request leaves its queue only when
it can be sent, so this also holds while the API server is slow.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiolimiter import AsyncLimiter

from tenure.model.base import REQUEST_PRIORITY

QPS = 200.0
BURST = 300
"""Karpenter's defaults."""
MAX_CONCURRENT_REQUESTS = 32
"""Without watches. An API server rejects larger bursts."""


class RateLimiter:
    """Each priority has a queue, served in order; waiting queues take turns."""

    def __init__(
        self,
        qps: float = QPS,
        burst: int = BURST,
        *,
        concurrency: int = MAX_CONCURRENT_REQUESTS,
        observe_wait: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`observe_wait` receives the wait of each request, in seconds."""
        self._limiter = AsyncLimiter(burst, burst / qps)
        self._slots = asyncio.Semaphore(concurrency)
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Queues with waiting requests by priority, the next one first."""
        self._serving: asyncio.Task[None] | None = None
        self._observe_wait = observe_wait

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """The time of one request. It starts at once while a token and a slot are free and nothing waits; else after a
        wait in the queue of the priority."""
        await self._acquire()
        try:
            yield
        finally:
            self._slots.release()

    async def _acquire(self) -> None:
        if not self._queues and self._limiter.has_capacity() and not self._slots.locked():
            await self._slots.acquire()
            await self._limiter.acquire()
            self._observe_wait(0.0)
            return
        loop = asyncio.get_running_loop()
        requested_at, future = loop.time(), loop.create_future()
        self._queues.setdefault(REQUEST_PRIORITY.get(), deque()).append(future)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="kube-pace")
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._slots.release()
            raise
        self._observe_wait(loop.time() - requested_at)

    async def _serve(self) -> None:
        """Runs until no request waits."""
        while self._queues:
            await self._slots.acquire()
            await self._limiter.acquire()
            while self._queues:
                if self._serve_next():
                    break
            else:
                self._slots.release()

    def _serve_next(self) -> bool:
        """Release the next request; False if it was cancelled."""
        priority = next(iter(self._queues))
        queue = self._queues.pop(priority)
        future = queue.popleft()
        if queue:
            self._queues[priority] = queue
        if future.done():
            return False
        future.set_result(None)
        return True
