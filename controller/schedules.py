"""The Temporal Schedules that start upkeep: one for each task, made or brought up to date by every worker's start.

A Schedule that a person paused stays paused; what else a person changed in it is put back at the next start.
"""

import asyncio
from datetime import timedelta
from typing import Final

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from model.upkeep import UpkeepAsked
from workflows import ids
from workflows.upkeep import TASKS, Task, UpkeepWorkflow

CATCH_UP: Final = timedelta(seconds=30)
"""A run that nobody could start in time is left out: the next one does its work too."""
JITTER: Final = 0.2
"""Of the interval: many tasks, and many clusters on one service, do not start together."""
LONGEST: Final = timedelta(hours=1)
"""For a run that no worker takes: without an end it would keep all later ones from starting."""


async def start_schedules(temporal: Client, cluster: str) -> None:
    await asyncio.gather(*(_ensure(temporal, cluster, name, task) for name, task in TASKS.items()))


async def remove_schedules(temporal: Client, cluster: str) -> None:
    """For whoever takes Tenure out of a cluster for good; runs under way are not ended."""
    for name in TASKS:
        try:
            await temporal.get_schedule_handle(ids.upkeep(cluster, name)).delete()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise


def schedule(cluster: str, name: str, task: Task) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            UpkeepWorkflow.run,
            UpkeepAsked(cluster=cluster, task=name),
            id=ids.upkeep(cluster, name),
            task_queue=ids.task_queue(cluster),
            execution_timeout=LONGEST,
            static_summary=task.does,
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=task.every)], jitter=task.every * JITTER),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP),
        state=ScheduleState(note=task.does),
    )


async def _ensure(temporal: Client, cluster: str, name: str, task: Task) -> None:
    wanted = schedule(cluster, name, task)
    try:
        await temporal.create_schedule(ids.upkeep(cluster, name), wanted)
    except ScheduleAlreadyRunningError:
        await temporal.get_schedule_handle(ids.upkeep(cluster, name)).update(lambda found: _mended(found, wanted))


def _mended(found: ScheduleUpdateInput, wanted: Schedule) -> ScheduleUpdate | None:
    """None where it is as it should be."""
    held = found.description.schedule
    if _essence(held) == _essence(wanted):
        return None
    return ScheduleUpdate(Schedule(action=wanted.action, spec=wanted.spec, policy=wanted.policy, state=held.state))


def _essence(one: Schedule) -> tuple[object, ...]:
    assert isinstance(one.action, ScheduleActionStartWorkflow)
    return (
        one.action.workflow,
        one.action.id,
        one.action.task_queue,
        one.action.execution_timeout,
        [(each.every, each.offset or timedelta(0)) for each in one.spec.intervals],
        one.spec.jitter,
        one.policy.overlap,
        one.policy.catchup_window,
    )
