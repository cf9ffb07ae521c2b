"""What the tasks of upkeep share: one thing after the other is put away, and what fails hurts only itself.

Counts go to the worker's metrics as they happen; the answer of a run sums them up.

What several tasks of upkeep read at about the same time is read once: a list of a thousand takes half a second.

Tasks run together, by the jitter of their Schedules. Whoever asks for a list of lately must decide nothing by what is
missing in it that it does not look at again.

Runs of upkeep that had nothing to do: deleted by the run after them, so that what is kept is worth reading.

Thousands of them a day would fill Temporal's database and its list of workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

import structlog
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.ports.core import Instances
from activities.ports.garbage_collection import Inventory
from activities.runtime import call_for_each, map_faults
from tenure import metrics
from tenure.model.errors import Fault, TryLater
from tenure.model.garbage_collection import (
    GarbageCollectionRequest,
    GarbageCollectionResult,
    InventoryNodeClaim,
    RunRef,
)
from tenure.model.provider_results import InstanceFacts

T = TypeVar("T")
GARBAGE = "GarbageCollected"
"""The reason of its events."""
AT_ONCE = 50
"""Things put away together: what EC2 is asked of many at a time becomes one call."""
UNREADABLE = (Fault, ValueError)
"""What one thing may raise without hurting another: a call that failed, or words that no model can read."""
_MAX_FAILURES = 5
_FAILURE_MAX_CHARS = 200
_MAX_SUSPECTS = 1000
"""The rest is suspected by a later run."""
log = structlog.get_logger(__name__)


def describe_error(error: Exception) -> str:
    return f"{error.code} {error.message}".strip() if isinstance(error, Fault) else str(error)


class CollectionStats:
    """One run of a task."""

    def __init__(self, request: GarbageCollectionRequest) -> None:
        self._task = request.task
        self.examined = 0
        self._collected = 0
        self._failures: list[str] = []
        self.suspects: list[str] = []
        """UIDs of what goes if the next run finds it as it is."""

    def record_collected(self, kind: str, name: str, **facts: object) -> None:
        """Count it, and leave a line in the log."""
        self._collected += 1
        metrics.GARBAGE_COLLECTION_COLLECTED.record(activity.metric_meter(), kind=kind)
        log.info("collected", kind=kind, name=name, **facts)

    def record_failed(self, kind: str, name: str, why: str) -> None:
        self._failures.append(f"{kind} {name}: {why}"[:_FAILURE_MAX_CHARS])
        metrics.GARBAGE_COLLECTION_FAILED.record(activity.metric_meter(), kind=kind)
        log.warning("not collected", kind=kind, name=name, why=why)

    async def process_each(
        self, kind: str, things: Iterable[tuple[str, T]], act: Callable[[T], Awaitable[None]]
    ) -> None:
        """Do it with each, named so; the fault of one is noted and the others go on."""

        async def process(named: tuple[str, T]) -> None:
            name, thing = named
            try:
                await act(thing)
            except UNREADABLE as error:
                self.record_failed(kind, name, describe_error(error))

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
"""Seconds for which a list may be used again, and is kept: nearly all of what the jitter puts between two tasks."""


class SharedList(Generic[T]):
    """One kind of list. Raises whatever the reading of it raises."""

    def __init__(self, read: Callable[[], Awaitable[Sequence[T]]]) -> None:
        self._read, self._lock = read, asyncio.Lock()
        self._cached: Sequence[T] | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None

    async def read_fresh(self) -> Sequence[T]:
        """As it is now."""
        async with self._lock:
            return await self._fetch()

    async def read_cached(self) -> Sequence[T]:
        """As it was not longer than `CACHE_SECONDS` ago."""
        async with self._lock:
            return await self._fetch() if self._cached is None else self._cached

    async def _fetch(self) -> Sequence[T]:
        """Its age is counted from before it was read."""
        began = asyncio.get_running_loop().time()
        found = await self._read()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._cached = found
        self._expiry_timer = asyncio.get_running_loop().call_at(began + CACHE_SECONDS, self._expire)
        return found

    def _expire(self) -> None:
        self._cached, self._expiry_timer = None, None


class SharedLists:
    """Those that more than one task asks for."""

    def __init__(self, *, instances: Instances, inventory: Inventory) -> None:
        self.instances: SharedList[InstanceFacts] = SharedList(instances.list_managed)
        self.claims: SharedList[InventoryNodeClaim] = SharedList(inventory.list_nodeclaims)


class RunCollector:
    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    @map_faults
    async def delete_uneventful_run(self, run: RunRef) -> None:
        """One that is gone already counts as forgotten."""
        execution = WorkflowExecution(workflow_id=run.workflow_id, run_id=run.run_id)
        request = DeleteWorkflowExecutionRequest(namespace=self._client.namespace, workflow_execution=execution)
        try:
            await self._client.workflow_service.delete_workflow_execution(request)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise TryLater(f"{run.workflow_id} cannot be deleted: {error.message}") from error
