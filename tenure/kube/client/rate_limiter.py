"""The rate of requests to the API server: `KUBE_CLIENT_QPS` in the long run, `KUBE_CLIENT_BURST` at once.

Callers that come by the hundred, such as the drains of a storm, wait among themselves: every other turn is for the
rest (`tenure/model/base.py`).
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from aiolimiter import AsyncLimiter

from tenure.model.base import REQUEST_PRIORITY

QPS = 200.0
BURST = 300
"""Karpenter's defaults."""


class RateLimiter:
    """Each lane serves its requests in order; waiting lanes take turns."""

    def __init__(
        self, qps: float = QPS, burst: int = BURST, *, observe_wait: Callable[[float], None] = lambda seconds: None
    ) -> None:
        """`observe_wait` receives the wait for each turn, in seconds."""
        self._limiter = AsyncLimiter(burst, burst / qps)
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting lanes, the next one first."""
        self._serving: asyncio.Task[None] | None = None
        self._observe_wait = observe_wait

    async def acquire(self) -> None:
        """At once while there are tokens; else when the one that is due has come in."""
        if not self._queues and self._limiter.has_capacity():
            await self._limiter.acquire()
            self._observe_wait(0.0)
            return
        requested_at = time.monotonic()
        future = asyncio.get_running_loop().create_future()
        self._queues.setdefault(REQUEST_PRIORITY.get(), deque()).append(future)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="kube-pace")
        await future
        self._observe_wait(time.monotonic() - requested_at)

    async def _serve(self) -> None:
        """Runs until no request waits."""
        while self._queues:
            await self._limiter.acquire()
            while self._queues and not self._serve_next():
                pass

    def _serve_next(self) -> bool:
        """Whether the next in turn still waited."""
        priority = next(iter(self._queues))
        queue = self._queues.pop(priority)
        future = queue.popleft()
        if queue:
            self._queues[priority] = queue
        if future.done():
            return False
        future.set_result(None)
        return True
