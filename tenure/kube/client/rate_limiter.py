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
_WHOLE = 1 - 1e-6
"""A token: sums of parts of one never quite come to it."""


class Pace:
    """A token bucket. Each lane has its turns in the order of asking; lanes in which somebody waits take turns."""

    def __init__(
        self,
        qps: float = QPS,
        burst: int = BURST,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        waited: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`waited` is told of each turn, in seconds."""
        self._qps, self._burst, self._clock, self._sleep = qps, burst, clock, sleep
        self._tokens, self._filled = float(burst), clock()
        self._lanes: dict[str, deque[asyncio.Future[None]]] = {}
        """Those in which somebody waits; the one whose turn it is first."""
        self._serving: asyncio.Task[None] | None = None
        self._waited = waited

    async def turn(self) -> None:
        """At once while there are tokens; else when the one that is due has come in."""
        self._fill()
        if not self._lanes and self._tokens >= _WHOLE:
            self._tokens -= 1
            self._waited(0.0)
            return
        asked = self._clock()
        mine = asyncio.get_running_loop().create_future()
        self._lanes.setdefault(REQUEST_PRIORITY.get(), deque()).append(mine)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="kube-pace")
        await mine
        self._waited(self._clock() - asked)

    async def _serve(self) -> None:
        """Until nobody waits."""
        while self._lanes:
            self._fill()
            if self._tokens < _WHOLE:
                await self._sleep((1 - self._tokens) / self._qps)
                continue
            lane = next(iter(self._lanes))
            waiting = self._lanes.pop(lane)
            mine = waiting.popleft()
            if waiting:
                self._lanes[lane] = waiting
            if not mine.done():  # Nor given up.
                mine.set_result(None)
                self._tokens -= 1

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled) * self._qps)
        self._filled = now
