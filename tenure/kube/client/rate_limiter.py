"""How fast requests go to the API server: `KUBE_CLIENT_QPS` for long, `KUBE_CLIENT_BURST` at first.

`client.py` takes a turn before each request, watches and repeats included. Those who come by the hundred, such as the
drains of a storm, wait among themselves: every other turn is for the rest (`tenure/model/base.py`).
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from tenure.model.base import REQUEST_PRIORITY

QPS = 200.0
BURST = 300
"""Karpenter's defaults."""
_FULL_TOKEN = 1 - 1e-6
"""A token: sums of parts of one never quite come to it."""


class RateLimiter:
    """A token bucket. Each lane has its turns in the order of asking; lanes in which somebody waits take turns."""

    def __init__(
        self,
        qps: float = QPS,
        burst: int = BURST,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        observe_wait: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`observe_wait` is told of each turn, in seconds."""
        self._qps, self._burst, self._clock, self._sleep = qps, burst, clock, sleep
        self._tokens, self._refilled_at = float(burst), clock()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Those in which somebody waits; the one whose turn it is first."""
        self._serving: asyncio.Task[None] | None = None
        self._observe_wait = observe_wait

    async def acquire(self) -> None:
        """At once while there are tokens; else when the one that is due has come in."""
        self._refill()
        if not self._queues and self._tokens >= _FULL_TOKEN:
            self._tokens -= 1
            self._observe_wait(0.0)
            return
        requested_at = self._clock()
        future = asyncio.get_running_loop().create_future()
        self._queues.setdefault(REQUEST_PRIORITY.get(), deque()).append(future)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="kube-pace")
        await future
        self._observe_wait(self._clock() - requested_at)

    async def _serve(self) -> None:
        """Until nobody waits."""
        while self._queues:
            self._refill()
            if self._tokens < _FULL_TOKEN:
                await self._sleep((1 - self._tokens) / self._qps)
                continue
            priority = next(iter(self._queues))
            queue = self._queues.pop(priority)
            future = queue.popleft()
            if queue:
                self._queues[priority] = queue
            if not future.done():  # Nor given up.
                future.set_result(None)
                self._tokens -= 1

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(float(self._burst), self._tokens + (now - self._refilled_at) * self._qps)
        self._refilled_at = now
