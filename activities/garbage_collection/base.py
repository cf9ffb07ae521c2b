"""Shared parts of the garbage collection tasks: counts per run, and lists that several tasks read at a similar time.

A fault of one object is counted and does not affect the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final, Generic, TypeVar

import structlog
from temporalio import activity

from activities.ports.core import Ports
from activities.runtime import call_for_each
from tenure import metrics
from tenure.model.errors import Fault
from tenure.model.garbage_collection import GarbageCollectionRequest, GarbageCollectionResult

T = TypeVar("T")
GARBAGE_COLLECTED = "GarbageCollected"
"""The reason of its Kubernetes events."""
AT_ONCE = 50
"""Objects that are collected concurrently, so that they share EC2 calls."""
UNREADABLE = (Fault, ValueError)
"""Errors of one object: a failed call, or a value that cannot be parsed."""
_MAX_FAILURES = 5
_FAILURE_MAX_CHARS = 200
_MAX_SUSPECTS = 1000
"""A later run finds the others."""
log = structlog.get_logger(__name__)


def describe_error(error: Exception) -> str:
    return f"{error.code} {error.message}".strip() if isinstance(error, Fault) else str(error)


class CollectionStats:
    """Counts of one run of a task."""

    def __init__(self, request: GarbageCollectionRequest) -> None:
        self._task = request.task
        self.examined = 0
        self._collected = 0
        self._failures: list[str] = []
        self.suspects: list[str] = []
        """UIDs of objects that the next run deletes if they have not changed."""

    def record_collected(self, kind: str, name: str, **facts: object) -> None:
        self._collected += 1
        metrics.GARBAGE_COLLECTION_COLLECTED.record(activity.metric_meter(), kind=kind)
        log.info("collected", kind=kind, name=name, **facts)

    def record_failed(self, kind: str, name: str, why: str) -> None:
        self._failures.append(f"{kind} {name}: {why}"[:_FAILURE_MAX_CHARS])
        metrics.GARBAGE_COLLECTION_FAILED.record(activity.metric_meter(), kind=kind)
        log.warning("not collected", kind=kind, name=name, why=why)

    async def process_each(
        self,
        kind: str,
        things: Iterable[T],
        act: Callable[[T], Awaitable[None]],
        name_of: Callable[[T], str] = attrgetter("name"),
    ) -> None:
        async def process(thing: T) -> None:
            try:
                await act(thing)
            except Exception as error:
                self.record_failed(kind, name_of(thing), describe_error(error))

        await call_for_each(things, process, at_once=AT_ONCE)

    def build_result(self) -> GarbageCollectionResult:
        return GarbageCollectionResult(
            task=self._task,
            checked=self.examined,
            collected=self._collected,
            failed=len(self._failures),
            notes=tuple(self._failures[:_MAX_FAILURES]),
            suspects=tuple(self.suspects[:_MAX_SUSPECTS]),
        )


CACHE_SECONDS: Final = 20.0
"""How long a list is reused and kept in memory. The tasks of a sweep share it; reading a thousand objects takes half a
second."""


class SharedList(Generic[T]):
    """A cached list. Raises the errors of `read`."""

    def __init__(self, read: Callable[[], Awaitable[Sequence[T]]]) -> None:
        self._read, self._lock = read, asyncio.Lock()
        self._cached: Sequence[T] | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None

    async def read_fresh(self) -> Sequence[T]:
        async with self._lock:
            return await self._fetch()

    async def read_cached(self) -> Sequence[T]:
        """At most `CACHE_SECONDS` old. If an object is missing here, read it again before acting on that."""
        async with self._lock:
            return await self._fetch() if self._cached is None else self._cached

    async def _fetch(self) -> Sequence[T]:
        """The age of the list counts from the start of the read."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        found = await self._read()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._cached, self._expiry_timer = found, loop.call_at(began + CACHE_SECONDS, self._expire)
        return found

    def _expire(self) -> None:
        self._cached, self._expiry_timer = None, None


class SharedLists:
    """The lists that more than one task reads."""

    def __init__(self, ports: Ports) -> None:
        self.instances = SharedList(ports.instances.list_managed)
        self.claims = SharedList(ports.inventory.list_nodeclaims)
