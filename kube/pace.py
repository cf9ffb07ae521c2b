"""How fast requests go to the API server: `KUBE_CLIENT_QPS` for long, `KUBE_CLIENT_BURST` at first.

`client.py` takes a turn before each request, watches and repeats included.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

QPS = 200.0
BURST = 300
"""Karpenter's defaults."""


class Pace:
    """A token bucket that hands out its turns in the order of asking."""

    def __init__(
        self,
        qps: float = QPS,
        burst: int = BURST,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._qps, self._burst, self._clock, self._sleep = qps, burst, clock, sleep
        self._tokens, self._filled = float(burst), clock()

    async def turn(self) -> None:
        """At once while there are tokens; else when the one that is owed has come in. A turn given up is lost."""
        now = self._clock()
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled) * self._qps) - 1
        self._filled = now
        if self._tokens < 0:
            await self._sleep(-self._tokens / self._qps)
