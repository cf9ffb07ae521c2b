"""The activity of garbage collection: it runs all tasks that are due, and returns their results.

One activity for all tasks keeps an idle cluster cheap (docs/decisions/temporal-cost.md).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from temporalio import activity

from activities.capacity_reservations import ReservationCollector
from activities.garbage_collection.aws import AwsCollector
from activities.garbage_collection.base import SharedLists, describe_error
from activities.garbage_collection.kubernetes import KubernetesCollector
from activities.ports.core import Ports
from activities.runtime import background_heartbeat
from tenure.model.errors import Fault
from tenure.model.garbage_collection import GarbageCollectionRequest, GarbageCollectionResult, SweepRequest, SweepResult

TASK_TIMEOUT_SECONDS: Final = 240.0
HEARTBEAT_SECONDS: Final = 5.0
"""A sweep of an idle cluster ends before its first heartbeat: each recorded heartbeat costs a Temporal action."""
FAULT_MAX_CHARS: Final = 300
log = structlog.get_logger(__name__)


class GarbageCollector:
    def __init__(self, ports: Ports) -> None:
        lists, reservations = SharedLists(ports), ReservationCollector(ports)
        aws, kubernetes = AwsCollector(ports, lists), KubernetesCollector(ports, lists)
        self.tasks: Mapping[str, Callable[[GarbageCollectionRequest], Awaitable[GarbageCollectionResult]]] = {
            "capacity-types": reservations.sync_capacity_types,
            "capacity-blocks": reservations.release_expiring_reservations,
            "instances": aws.terminate_orphaned_instances,
            "nodeclaims": kubernetes.collect_nodeclaims,
            "tags": aws.tag_instances,
            "leases": kubernetes.collect_leases,
            "nodes": kubernetes.collect_nodes,
            "launch-templates": aws.collect_launch_templates,
            "instance-profiles": aws.collect_instance_profiles,
        }

    @activity.defn
    async def collect_garbage(self, request: SweepRequest) -> SweepResult:
        """Run the tasks concurrently. The fault of one does not affect the others."""
        async with background_heartbeat(every=HEARTBEAT_SECONDS):
            results = await asyncio.gather(*(self._run_task(one) for one in request.tasks))
        return SweepResult(results=tuple(results))

    async def _run_task(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        task = self.tasks.get(request.task)
        if task is None:
            return GarbageCollectionResult(task=request.task, fault="this version of the worker has no such task")
        try:
            async with asyncio.timeout(TASK_TIMEOUT_SECONDS):
                return await task(request)
        except Exception as error:
            fault = _describe_fault(error)
            is_bug = not isinstance(error, (Fault, TimeoutError))
            log.warning("garbage collection task failed", task=request.task, fault=fault, exc_info=is_bug)
            return GarbageCollectionResult(task=request.task, fault=fault[:FAULT_MAX_CHARS])


def _describe_fault(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"not finished within {TASK_TIMEOUT_SECONDS:g} s"
    return describe_error(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
