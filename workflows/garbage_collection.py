"""Upkeep: one task, once. Temporal Schedules start it, one Schedule for each task of the table.

Collection of what nobody owns and nobody else puts away. A run is one activity and few events; what goes wrong is
a value in its result, and the next run begins afresh.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.capacity_reservations import ReservationActivities
from activities.garbage_collection.aws import InstanceUpkeep, LaunchUpkeep, TagUpkeep
from activities.garbage_collection.base import RunUpkeep
from activities.garbage_collection.kubernetes import ClaimUpkeep, LeaseUpkeep
from tenure.model.garbage_collection import RunRef, UpkeepAsked, UpkeepDone
from workflows import current_details
from workflows.activity_options import FORGET, UPKEEP, named

FAULTS: Final = "tenure_upkeep_faults_total"


class Task(NamedTuple):
    every: timedelta
    activity: Callable[[Any, UpkeepAsked], Awaitable[UpkeepDone]]
    does: str
    patience: timedelta = timedelta(minutes=5)
    """For one try; a run, with its tries, has thrice that."""


def minutes(number: int) -> timedelta:
    return timedelta(minutes=number)


TASKS: Final[dict[str, Task]] = {
    "capacity-types": Task(
        minutes(1), ReservationActivities.sync_capacity_types, "relabels nodes whose capacity reservation is gone"
    ),
    "capacity-blocks": Task(
        minutes(1), ReservationActivities.end_expiring_reservations, "drains nodes on capacity blocks that end soon"
    ),
    "instances": Task(
        minutes(2), InstanceUpkeep.end_unowned_instances, "ends instances of this cluster that no NodeClaim has"
    ),
    "nodeclaims": Task(minutes(2), ClaimUpkeep.collect_claims, "deletes NodeClaims whose instance is gone"),
    "tags": Task(minutes(2), TagUpkeep.tag_instances, "tags instances whose Node has joined: Name, NodeClaim, cluster"),
    "leases": Task(minutes(5), LeaseUpkeep.collect_leases, "deletes Leases in kube-node-lease whose Node is gone"),
    "nodes": Task(minutes(10), ClaimUpkeep.collect_nodes, "deletes Nodes whose NodeClaim and instance are gone"),
    "launch-templates": Task(
        minutes(15), LaunchUpkeep.collect_launch_templates, "deletes launch templates that nobody launches with"
    ),
    "instance-profiles": Task(
        minutes(30), LaunchUpkeep.collect_profiles, "deletes instance profiles that no class, NodeClaim or instance has"
    ),
}
"""By name, which is also the last part of the Schedule's id."""


@workflow.defn
class UpkeepWorkflow:
    @workflow.run
    async def run(self, asked: UpkeepAsked) -> UpkeepDone:
        task, before = TASKS.get(asked.task), _before()
        if task is None:
            done = UpkeepDone(task=asked.task, fault="this version of the worker has no such task")
        else:
            workflow.set_current_details(f"**{asked.task}**: {task.does}")
            asked = asked.model_copy(update={"suspects": before.suspects})
            done, _ = await asyncio.gather(_perform(asked, task), _forget(before))
        if done.fault:
            counter = workflow.metric_meter().create_counter(FAULTS, "Runs of upkeep that came to nothing")
            counter.add(1, {"task": asked.task})
        workflow.set_current_details(current_details.of_upkeep(done))
        info = workflow.info()
        return done.model_copy(update={"run": RunRef(workflow_id=info.workflow_id, run_id=info.run_id)})


def _before() -> UpkeepDone:
    """What the last run of this Schedule answered."""
    found = workflow.get_last_completion_result(UpkeepDone) if workflow.has_last_completion_result() else None
    return found if isinstance(found, UpkeepDone) else UpkeepDone()


async def _perform(asked: UpkeepAsked, task: Task) -> UpkeepDone:
    options = {
        **named(UPKEEP, task.does),
        "start_to_close_timeout": task.patience,
        "schedule_to_close_timeout": 3 * task.patience,
    }
    try:
        return await workflow.execute_activity_method(task.activity, asked, **options)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return UpkeepDone(task=asked.task, fault=str(error.cause or error)[:300])


async def _forget(before: UpkeepDone) -> None:
    """Best effort: what is not forgotten goes with the namespace's retention."""
    if before.run is None or not before.uneventful:
        return
    try:
        await workflow.execute_activity_method(
            RunUpkeep.forget_run, before.run, **named(FORGET, "delete the last run, which had nothing to do")
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
