"""GarbageCollector deletes resources without an owner: one long-lived workflow with durable timers.

At each wake-up, one activity runs all tasks that are due. A fault is a value in a task's result, and the task runs
again at the next wake-up. docs/decisions/temporal-cost.md explains the intervals.
"""

import zlib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.garbage_collection.collector import FAULT_MAX_CHARS, GarbageCollector
from tenure.metrics import GARBAGE_COLLECTION_FAULTS
from tenure.model.garbage_collection import (
    GarbageCollectionRequest,
    GarbageCollectionResult,
    GarbageCollectorState,
    SweepRequest,
    SweepResult,
    TaskSelection,
    TaskState,
)
from workflows import current_details
from workflows.activity_options import GARBAGE_COLLECTION, is_continue_as_new_due, with_summary
from workflows.current_details import IgnoresCancellation, publish_details
from workflows.timers import MIN_TIMER, time_until, wait_at_most

SHORTEST: Final = timedelta(minutes=2)
"""All other intervals are multiples, so that tasks share wake-ups."""
IN_USE: Final = timedelta(minutes=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Task(NamedTuple):
    every: timedelta
    description: str
    every_in_use: timedelta | None = None
    """While the last run found objects that this task is about; a divisor of `every`."""


def minutes(number: int) -> timedelta:
    return timedelta(minutes=number)


TASKS: Final[dict[str, Task]] = {
    "capacity-types": Task(SHORTEST, "relabels nodes whose capacity reservation is gone", IN_USE),
    "capacity-blocks": Task(SHORTEST, "drains nodes on capacity blocks that end soon", IN_USE),
    "instances": Task(SHORTEST, "terminates instances of this cluster that no NodeClaim owns"),
    "nodeclaims": Task(SHORTEST, "deletes NodeClaims whose instance is gone"),
    "tags": Task(SHORTEST, "tags instances whose Node has joined: Name, NodeClaim, cluster"),
    "leases": Task(minutes(6), "deletes Leases in kube-node-lease whose Node is gone"),
    "nodes": Task(minutes(10), "deletes Nodes whose NodeClaim and instance are gone"),
    "launch-templates": Task(minutes(16), "deletes unused launch templates"),
    "instance-profiles": Task(
        minutes(30), "deletes instance profiles that no EC2NodeClass, NodeClaim or instance uses"
    ),
}


@workflow.defn(name="GarbageCollector")
class GarbageCollectorWorkflow(IgnoresCancellation):
    how_to_stop = "send it the signal pause_task for each task, or scale the Deployment of the worker to zero"

    @workflow.init
    def __init__(self, state: GarbageCollectorState) -> None:
        self._state = state
        self._requested = set[str]()
        self._running: Collection[str] = ()

    @workflow.run
    async def run(self, state: GarbageCollectorState) -> None:
        while not (is_continue_as_new_due() and workflow.all_handlers_finished()):
            while not (due := self._due_tasks()):
                await self._wait_until(self._next_wakeup())
            await self._run_tasks(due)
        workflow.continue_as_new(self._state)

    @workflow.update(description='Run a task now, also if it is paused: {"task": "instances"}')
    async def run_task(self, request: TaskSelection) -> GarbageCollectionResult:
        """A run that is already running does not count."""
        task = request.task
        earlier_runs = self._task_state(task).runs + (task in self._running)
        self._requested.add(task)
        await workflow.wait_condition(lambda: self._task_state(task).runs > earlier_runs)
        return self._task_state(task).result

    @run_task.validator
    def _validate_run_task(self, request: TaskSelection) -> None:
        if request.task not in TASKS:
            raise ValueError(f"task: unknown task {request.task!r}, expected one of {', '.join(TASKS)}, e.g. instances")

    @workflow.signal(description='Run a task only on request, until resume_task: {"task": "instances"}')
    def pause_task(self, request: TaskSelection) -> None:
        self._update_tasks({request.task: {"paused": True}})

    @workflow.signal(description='Run a paused task again at its interval: {"task": "instances"}')
    def resume_task(self, request: TaskSelection) -> None:
        self._update_tasks({request.task: {"paused": False}})

    @workflow.query(description="The complete state of the workflow")
    def state(self) -> GarbageCollectorState:
        return self._state

    def _due_tasks(self) -> list[str]:
        now = workflow.now()
        return [name for name in TASKS if name in self._requested or self._is_due(self._task_state(name), now)]

    def _is_due(self, state: TaskState, now: datetime) -> bool:
        return not state.paused and (state.next_run is None or state.next_run <= now + MIN_TIMER)

    def _next_wakeup(self) -> datetime | None:
        """None if all tasks are paused."""
        states = [self._task_state(name) for name in TASKS]
        return min((one.next_run for one in states if one.next_run and not one.paused), default=None)

    async def _wait_until(self, at: datetime | None) -> None:
        """Return at this time, or when a request changes it."""
        self._publish()

        def is_changed() -> bool:
            return bool(self._due_tasks()) or self._next_wakeup() != at

        if at is None:
            await workflow.wait_condition(is_changed)
        else:
            await wait_at_most(time_until(at), is_changed, "the next sweep")

    async def _run_tasks(self, names: Collection[str]) -> None:
        self._running, started = names, workflow.now()
        self._requested -= set(names)
        self._publish()
        results = await self._sweep(names)
        for name in (one for one in names if results[one].fault):
            GARBAGE_COLLECTION_FAULTS.record(workflow.metric_meter(), task=name)
        self._running, now, offset = (), workflow.now(), _offset_of(self._state.cluster)
        self._update_tasks(
            {
                name: {
                    "runs": self._task_state(name).runs + 1,
                    "last_run": started,
                    "next_run": next_run_of(TASKS[name], result, now, offset=offset),
                    "result": result,
                }
                for name, result in results.items()
            }
        )

    async def _sweep(self, names: Collection[str]) -> Mapping[str, GarbageCollectionResult]:
        """By task. A task without a result has a fault."""
        cluster = self._state.cluster
        requests = tuple(
            GarbageCollectionRequest(cluster=cluster, task=name, suspects=self._task_state(name).result.suspects)
            for name in names
        )
        fault, results = "no result", tuple[GarbageCollectionResult, ...]()
        try:
            swept: SweepResult = await workflow.execute_activity_method(
                GarbageCollector.collect_garbage,
                SweepRequest(tasks=requests),
                **with_summary(GARBAGE_COLLECTION, ", ".join(names)),
            )
            results = swept.results
        except ActivityError as error:
            fault = str(error.cause or error)[:FAULT_MAX_CHARS]
        found = {one.task: one for one in results}
        return {name: found.get(name) or GarbageCollectionResult(task=name, fault=fault) for name in names}

    def _task_state(self, name: str) -> TaskState:
        return self._state.tasks.get(name, TaskState())

    def _update_tasks(self, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """`fields`: changed fields by task. Unknown tasks are ignored."""
        changed = {name: self._task_state(name).model_copy(update=fields[name]) for name in TASKS if name in fields}
        self._state = self._state.model_copy(update={"tasks": self._state.tasks | changed})
        self._publish()

    def _publish(self) -> None:
        descriptions = {name: task.description for name, task in TASKS.items()}
        publish_details(
            current_details.render_garbage_collection(self._state, descriptions, self._running, self._next_wakeup())
        )


def next_run_of(task: Task, result: GarbageCollectionResult, now: datetime, *, offset: timedelta) -> datetime:
    """The next multiple of the task's interval since the epoch, plus `offset`. A missed run is skipped."""
    every = task.every
    if result.fault:
        every = min(every, SHORTEST)
    elif result.checked and task.every_in_use:
        every = task.every_in_use
    # A timer may fire some milliseconds early.
    after = now + MIN_TIMER
    return after + every - (after - EPOCH - offset) % every


def _offset_of(cluster: str) -> timedelta:
    """So that clusters that share a service do not sweep at the same time."""
    return timedelta(seconds=zlib.crc32(cluster.encode()) % SHORTEST.total_seconds())
