"""NodeClaims' `status.lastPodEventTime`: when a pod came to the node or left it last, for whoever watches next.

`consolidateAfter` counts from it. As with Karpenter it is written at once, and again ten seconds later at the soonest
(reference 3.9); what happens in between is written then. While AWS takes a node back nobody asks how long it was calm.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from activities.ports.core import Claims
from tenure.controller.cache.cluster_cache import Caches
from tenure.model.errors import Fault

log = structlog.get_logger(__name__)

EVERY: Final = timedelta(seconds=10)
"""Between two writes to one NodeClaim, and before one that failed is tried again."""
LOOK: Final = 1.0
"""Seconds, while some wait for their turn."""
AT_ONCE: Final = 4


class PodEvents:
    """`look` after every burst of changes; run `run` in a task once every kind is known."""

    def __init__(self, caches: Caches, claims: Claims, now: Callable[[], datetime]) -> None:
        self._caches, self._claims, self._now = caches, claims, now
        self._waiting: set[str] = set()
        """NodeClaims whose pods have moved."""
        self._tried: dict[str, datetime] = {}
        self._news = asyncio.Event()

    def look(self) -> None:
        moved = self._caches.changes.take_moved()
        if moved:
            self._waiting |= moved
            self._news.set()

    async def run(self) -> None:
        """Until cancelled. While no pod moves nothing happens."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self.write()
            if self._waiting:
                await asyncio.sleep(LOOK)
                self._news.set()

    async def write(self) -> None:
        """Those whose turn it is."""
        now = self._now()
        self._tried = {name: at for name, at in self._tried.items() if now - at < EVERY}
        ready = sorted(self._waiting - self._tried.keys() - self._caches.evacuated - self._caches.going)
        self._waiting -= {*ready}
        turns = asyncio.Semaphore(AT_ONCE)

        async def each(name: str) -> None:
            async with turns:
                await self._write(name, now)

        await asyncio.gather(*(each(name) for name in ready))

    async def _write(self, name: str, now: datetime) -> None:
        claim = self._caches.claims.get(name)
        moved = self._caches.timed(name).last_pod_event if claim else None
        if claim is None or claim.deleting or moved is None:
            return
        whole = moved.astimezone(UTC).replace(microsecond=0)
        if claim.last_pod_event is not None and whole <= claim.last_pod_event:
            return
        self._tried[name] = now
        written = whole.isoformat().replace("+00:00", "Z")
        try:
            await self._claims.patch(name, claim.uid, status={"lastPodEventTime": written}, now=now)
        except Fault as fault:
            log.warning("the time of the last pod event was not written", name=name, fault=str(fault))
            self._waiting.add(name)
