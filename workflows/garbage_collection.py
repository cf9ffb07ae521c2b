"""Garbage collection: one task per run, started by one Temporal Schedule for each task of the table.

Each task deletes resources without an owner. A run has one activity and few history events. A failure is a value in its
result, and the next run starts again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.capacity_reservations import ReservationActivities
from activities.garbage_collection.aws import AwsCollector
from activities.garbage_collection.kubernetes import KubernetesCollector
from tenure.metrics import GARBAGE_COLLECTION_FAULTS
from tenure.model.garbage_collection import GarbageCollectionRequest, GarbageCollectionResult, RunRef
from workflows import current_details
from workflows.activity_options import DELETE_RUN, GARBAGE_COLLECTION, with_summary


class Task(NamedTuple):
    every: timedelta
    activity: Callable[[Any, GarbageCollectionRequest], Awaitable[GarbageCollectionResult]]
    description: str
    timeout: timedelta = timedelta(minutes=5)
    """Of one attempt; all attempts of a run together have three times this."""


def minutes(number: int) -> timedelta:
    return timedelta(minutes=number)


TASKS: Final[dict[str, Task]] = {
    "capacity-types": Task(
        minutes(1), ReservationActivities.sync_capacity_types, "relabels nodes whose capacity reservation is gone"
    ),
    "capacity-blocks": Task(
        minutes(1), ReservationActivities.release_expiring_reservations, "drains nodes on capacity blocks that end soon"
    ),
    "instances": Task(
        minutes(2),
        AwsCollector.terminate_orphaned_instances,
        "terminates instances of this cluster that no NodeClaim owns",
    ),
    "nodeclaims": Task(minutes(2), KubernetesCollector.collect_nodeclaims, "deletes NodeClaims whose instance is gone"),
    "tags": Task(
        minutes(2), AwsCollector.tag_instances, "tags instances whose Node has joined: Name, NodeClaim, cluster"
    ),
    "leases": Task(
        minutes(5), KubernetesCollector.collect_leases, "deletes Leases in kube-node-lease whose Node is gone"
    ),
    "nodes": Task(
        minutes(10), KubernetesCollector.collect_nodes, "deletes Nodes whose NodeClaim and instance are gone"
    ),
    "launch-templates": Task(minutes(15), AwsCollector.collect_launch_templates, "deletes unused launch templates"),
    "instance-profiles": Task(
        minutes(30),
        AwsCollector.collect_instance_profiles,
        "deletes instance profiles that no EC2NodeClass, NodeClaim or instance uses",
    ),
}
"""By name, which is also the last part of the Schedule's ID."""


@workflow.defn(name="GarbageCollection")
class GarbageCollectionWorkflow:
    @workflow.run
    async def run(self, request: GarbageCollectionRequest) -> GarbageCollectionResult:
        task, last_result = TASKS.get(request.task), _last_result()
        if task is None:
            result = GarbageCollectionResult(task=request.task, fault="this version of the worker has no such task")
        else:
            workflow.set_current_details(f"**{request.task}**: {task.description}")
            request = request.model_copy(update={"suspects": last_result.suspects})
            result, _ = await asyncio.gather(_run_task(request, task), _delete_uneventful_run(last_result))
        if result.fault:
            GARBAGE_COLLECTION_FAULTS.record(workflow.metric_meter(), task=request.task)
        workflow.set_current_details(current_details.render_garbage_collection(result))
        info = workflow.info()
        return result.model_copy(update={"run": RunRef(workflow_id=info.workflow_id, run_id=info.run_id)})


def _last_result() -> GarbageCollectionResult:
    """The result of the Schedule's last run."""
    found = (
        workflow.get_last_completion_result(GarbageCollectionResult) if workflow.has_last_completion_result() else None
    )
    return found if isinstance(found, GarbageCollectionResult) else GarbageCollectionResult()


async def _run_task(request: GarbageCollectionRequest, task: Task) -> GarbageCollectionResult:
    options = {
        **with_summary(GARBAGE_COLLECTION, task.description),
        "start_to_close_timeout": task.timeout,
        "schedule_to_close_timeout": 3 * task.timeout,
    }
    try:
        return await workflow.execute_activity_method(task.activity, request, **options)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return GarbageCollectionResult(task=request.task, fault=str(error.cause or error)[:300])


async def _delete_uneventful_run(last_result: GarbageCollectionResult) -> None:
    """Best effort: otherwise the run is deleted at the end of the namespace's retention period."""
    if last_result.run is None or not last_result.is_uneventful:
        return
    try:
        await workflow.execute_activity_method(
            KubernetesCollector.delete_uneventful_run,
            last_result.run,
            **with_summary(DELETE_RUN, "delete the last run, which had nothing to do"),
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
