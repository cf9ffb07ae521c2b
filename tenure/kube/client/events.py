"""Kubernetes events, deduplicated, sent behind the caller's back, never failing it (reference 5.2).

Satisfies `activities.ports.Events`. An event lost in a crash is lost, and so is one that the API server does not take
for a minute; the conditions tell the same story.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.resources import (
    DAEMON_SETS,
    EC2_NODE_CLASSES,
    EVENTS,
    LIFECYCLE_POLICIES,
    NAMESPACES,
    NODE_CLAIMS,
    NODE_OVERLAYS,
    NODE_POOLS,
    NODES,
    PODS,
)
from tenure.model.base import REQUEST_PRIORITY
from tenure.model.errors import Conflict, Fault, Throttled, TryLater

log = structlog.get_logger(__name__)

COMPONENT: Final = "karpenter"
_QUIET: Final = {"FailedScheduling": 300.0, "Unconsolidatable": 900.0, "NodeRepairBlocked": 900.0}
"""Seconds in which the same event about the same object is not repeated, where it is not the default."""
_QUIET_DEFAULT: Final = 120.0
_CHANGED_QUIET: Final = 10.0
"""Seconds between two events of one reason about one object that say different things."""
_NOMINATED: Final = "Nominated"
_NOMINATED_RATE: Final = 5.0
_NOMINATED_BURST: Final = 10.0
_WAITING: Final = 5000
"""A storm of 500 nodes says some five things of each."""
_SENDERS: Final = 4
_AGAIN_IN: Final = (1.0, 4.0, 15.0, 40.0)
"""Seconds before each further try of one that the API server did not take."""
_MESSAGE_LIMIT: Final = 1024
_API_VERSIONS: Final = {
    one.kind: one.api_version
    for one in (
        NODE_POOLS,
        NODE_CLAIMS,
        EC2_NODE_CLASSES,
        NODE_OVERLAYS,
        LIFECYCLE_POLICIES,
        NODES,
        PODS,
        DAEMON_SETS,
        NAMESPACES,
    )
}


class KubeEvents:
    """`publish` decides and queues; a few tasks send. `close` sends what is left, for a moment."""

    def __init__(
        self,
        client: KubeClient,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self._clock, self._sleep = client, clock, sleep
        self._waiting: asyncio.Queue[Json] = asyncio.Queue(_WAITING)
        self._senders: list[asyncio.Task[None]] = []
        self._last: dict[tuple[str, str], tuple[float, str]] = {}
        self._tokens = _NOMINATED_BURST
        self._filled = clock()

    async def publish(
        self,
        *,
        kind: str,
        name: str,
        uid: str,
        reason: str,
        message: str,
        warning: bool = False,
        namespace: str = "",
    ) -> None:
        if self._repeats(uid or name, reason, message) or self._too_many(reason):
            return
        self._start()
        try:
            self._waiting.put_nowait(_event(kind, name, uid, reason, message[:_MESSAGE_LIMIT], warning, namespace))
        except asyncio.QueueFull:
            log.debug("event dropped", reason=reason, object=name)

    async def flush(self) -> None:
        """Until all that was published so far is sent."""
        await self._waiting.join()

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self.flush(), timeout=2.0)
        except TimeoutError:
            log.debug("events dropped at the end", count=self._waiting.qsize())
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        self._senders.clear()

    def _repeats(self, about: str, reason: str, message: str) -> bool:
        now = self._clock()
        last = self._last.get((about, reason))
        if last is not None:
            same = last[1] == message
            quiet = _QUIET.get(reason, _QUIET_DEFAULT) if same else _CHANGED_QUIET
            if now - last[0] < quiet:
                return True
        self._last[about, reason] = (now, message)
        if len(self._last) > 4 * _WAITING:
            self._forget(now)
        return False

    def _forget(self, now: float) -> None:
        longest = max(_QUIET.values())
        self._last = {key: said for key, said in self._last.items() if now - said[0] < longest}

    def _too_many(self, reason: str) -> bool:
        if reason != _NOMINATED:
            return False
        now = self._clock()
        self._tokens = min(_NOMINATED_BURST, self._tokens + (now - self._filled) * _NOMINATED_RATE)
        self._filled = now
        if self._tokens < 1:
            return True
        self._tokens -= 1
        return False

    def _start(self) -> None:
        if not self._senders:
            self._senders = [asyncio.create_task(self._send(), name="kube-events") for _ in range(_SENDERS)]

    async def _send(self) -> None:
        REQUEST_PRIORITY.set("crowd")
        while True:
            event = await self._waiting.get()
            try:
                await self._post(event)
            except Conflict:
                pass  # A try before was cut off and had arrived: no other event has its name.
            except Fault as fault:
                log.warning("event lost", reason=event["reason"], fault=str(fault))
            finally:
                self._waiting.task_done()

    async def _post(self, event: Json) -> None:
        """Raises the fault of the last try."""
        path = EVENTS.path(namespace=event["metadata"]["namespace"])
        for pause in (*_AGAIN_IN, None):
            try:
                await self._client.request("POST", path, body=event)
                return
            except (TryLater, Throttled):
                if pause is None:
                    raise
                await self._sleep(pause)


def _event(kind: str, name: str, uid: str, reason: str, message: str, warning: bool, namespace: str) -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    space = namespace or "default"
    about = {"apiVersion": _API_VERSIONS.get(kind, "v1"), "kind": kind, "name": name, "uid": uid}
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
