"""Publishes Kubernetes events in the background, deduplicated (reference 5.2). Publishing never fails.

Queued events are lost in a crash, and an event is dropped if the API server does not accept it for a minute.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from cachetools import TLRUCache

from tenure.clock import utc_now
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.event_reasons import EVENT_REASONS, UNLISTED, EventReason
from tenure.kube.client.resources import EVENTS, RESOURCES
from tenure.model.base import REQUEST_PRIORITY
from tenure.model.errors import Conflict, Fault, Throttled, TryLater

log = structlog.get_logger(__name__)

COMPONENT: Final = "karpenter"
_CHANGED_MESSAGE_SECONDS: Final = 10.0
"""Minimum interval between events with the same object and reason, but another message."""
_LIMITED: Final = frozenset({("Pod", "Nominated"), ("Pod", "InsufficientCapacityError")})
"""Kinds and reasons with a common rate for all objects of the kind: a plan may concern thousands of pods."""
_LIMITED_RATE: Final = 5.0
_LIMITED_BURST: Final = 10.0
_MAX_QUEUED: Final = 5000
"""An interruption burst of 500 nodes publishes about five events per node."""
_CACHE_SIZE: Final = 10 * _MAX_QUEUED
"""Published events that are not repeated; the oldest are forgotten first."""
_SENDERS: Final = 4
_RETRY_PAUSES: Final = (1.0, 4.0, 15.0, 40.0)
"""Seconds before each retry."""
_MESSAGE_LIMIT: Final = 1024


class KubeEvents:
    """`publish` deduplicates and queues events, and background tasks send them. `close` sends for a limited time."""

    def __init__(
        self,
        client: KubeClient,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self._clock, self._sleep = client, clock, sleep
        self._queue: asyncio.Queue[Json] = asyncio.Queue(_MAX_QUEUED)
        self._senders: list[asyncio.Task[None]] = []
        self._last_published: TLRUCache[tuple[str, str], tuple[float, str]] = TLRUCache(
            _CACHE_SIZE, lambda key, _, now: now + _reason_of(key[1]).repeat_after_seconds, timer=clock
        )
        self._buckets = {one: (_LIMITED_BURST, clock()) for one in _LIMITED}
        """Tokens, and when they were last added."""

    async def publish(
        self,
        *,
        kind: str,
        name: str,
        uid: str,
        reason: str,
        message: str,
        warning: bool | None = None,
        namespace: str = "",
    ) -> None:
        if self._is_duplicate(uid or name, reason, message) or self._is_rate_limited(kind, reason):
            return
        self._start_senders()
        try:
            if warning is None:
                warning = _reason_of(reason).warning
            self._queue.put_nowait(_build_event(kind, name, uid, reason, message[:_MESSAGE_LIMIT], warning, namespace))
        except asyncio.QueueFull:
            log.debug("event dropped", reason=reason, object=name)

    async def flush(self) -> None:
        """Wait until all events that were published so far are sent."""
        await self._queue.join()

    async def close(self) -> None:
        try:
            async with asyncio.timeout(2.0):
                await self.flush()
        except TimeoutError:
            log.debug("events dropped at shutdown", count=self._queue.qsize())
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        self._senders.clear()

    def _is_duplicate(self, about: str, reason: str, message: str) -> bool:
        now = self._clock()
        last = self._last_published.get((about, reason))
        if last is not None:
            quiet = _reason_of(reason).repeat_after_seconds if last[1] == message else _CHANGED_MESSAGE_SECONDS
            if now - last[0] < quiet:
                return True
        self._last_published[about, reason] = (now, message)
        return False

    def _is_rate_limited(self, kind: str, reason: str) -> bool:
        bucket = self._buckets.get((kind, reason))
        if bucket is None:
            return False
        now = self._clock()
        tokens = min(_LIMITED_BURST, bucket[0] + (now - bucket[1]) * _LIMITED_RATE)
        self._buckets[kind, reason] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens < 1

    def _start_senders(self) -> None:
        if not self._senders:
            self._senders = [asyncio.create_task(self._send(), name="kube-events") for _ in range(_SENDERS)]

    async def _send(self) -> None:
        REQUEST_PRIORITY.set("bulk")
        while True:
            event = await self._queue.get()
            try:
                await self._post_with_retries(event)
            except Conflict:
                pass  # An earlier attempt succeeded without a response; names of events are unique.
            except Fault as fault:
                log.warning("failed to publish event", reason=event["reason"], fault=str(fault))
            finally:
                self._queue.task_done()

    async def _post_with_retries(self, event: Json) -> None:
        """Raises the fault of the last attempt."""
        path = EVENTS.path(namespace=event["metadata"]["namespace"])
        for pause in (*_RETRY_PAUSES, None):
            try:
                await self._client.request("POST", path, body=event)
                return
            except (TryLater, Throttled):
                if pause is None:
                    raise
                await self._sleep(pause)


def _reason_of(reason: str) -> EventReason:
    return EVENT_REASONS.get(reason, UNLISTED)


def _build_event(kind: str, name: str, uid: str, reason: str, message: str, warning: bool, namespace: str) -> Json:
    now = utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
    space = namespace or "default"
    about = {
        "apiVersion": RESOURCES[kind].api_version if kind in RESOURCES else "v1",
        "kind": kind,
        "name": name,
        "uid": uid,
    }
    if namespace:
        about["namespace"] = namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name[:230]}.{uuid.uuid4().hex[:16]}", "namespace": space},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
