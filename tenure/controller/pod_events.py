"""Writes `status.lastPodEventTime` of NodeClaims, from which `consolidateAfter` counts, for the next host.

As in Karpenter, the first event is written at once, later ones at most every ten seconds (reference 3.9). Nodes that
AWS reclaims are skipped."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from activities.ports.core import Claims
from activities.runtime import call_for_each
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.errors import Fault
from tenure.model.invalid_objects import ObjectKey

log = structlog.get_logger(__name__)

MIN_WRITE_INTERVAL: Final = timedelta(seconds=10)
"""Between two writes to one NodeClaim, also after a failed one."""
POLL_SECONDS: Final = 1.0
"""Seconds between checks while NodeClaims wait for MIN_WRITE_INTERVAL."""
MAX_CONCURRENT_WRITES: Final = 4


class LastPodEventWriter:
    """Call `collect` after every burst of changes; run `run` in a task once every kind is synced."""

    def __init__(self, cache: ClusterCache, claims: Claims, now: Callable[[], datetime]) -> None:
        self._cache, self._claims, self._now = cache, claims, now
        self._waiting: set[str] = set()
        """NodeClaims with unwritten pod events."""
        self._tried: dict[str, datetime] = {}
        self._changed = asyncio.Event()

    def collect(self) -> None:
        changed = self._cache.planner_changes.drain_pod_events()
        if changed:
            self._waiting |= changed
            self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.write()
            if self._waiting:
                await asyncio.sleep(POLL_SECONDS)
                self._changed.set()

    async def write(self) -> None:
        """Write the NodeClaims that are due."""
        now = self._now()
        self._tried = {name: at for name, at in self._tried.items() if now - at < MIN_WRITE_INTERVAL}
        ready = sorted(self._waiting - self._tried.keys() - self._cache.early_evicted - self._cache.interrupted)
        self._waiting -= {*ready}
        await call_for_each(ready, lambda name: self._write_guarded(name, now), at_once=MAX_CONCURRENT_WRITES)

    async def _write_guarded(self, name: str, now: datetime) -> None:
        with self._cache.invalid_objects.guard(ObjectKey(NODE_CLAIMS.kind, name, step="pod event")):
            await self._write(name, now)

    async def _write(self, name: str, now: datetime) -> None:
        claim = self._cache.nodeclaims.get(name)
        last_event = self._cache.planner_fact(name).last_pod_event if claim else None
        if claim is None or claim.deleting or last_event is None:
            return
        truncated = last_event.astimezone(UTC).replace(microsecond=0)
        if claim.last_pod_event is not None and truncated <= claim.last_pod_event:
            return
        self._tried[name] = now
        written = truncated.isoformat().replace("+00:00", "Z")
        is_written = False
        try:
            await self._claims.patch(name, claim.uid, status={"lastPodEventTime": written}, now=now)
            is_written = True
        except Fault as fault:
            log.warning("the time of the last pod event was not written", name=name, fault=str(fault))
        finally:
            if not is_written:
                self._waiting.add(name)
