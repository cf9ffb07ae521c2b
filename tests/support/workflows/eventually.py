"""Waiting for workflows in tests."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    ListClosedWorkflowExecutionsRequest,
    ListOpenWorkflowExecutionsRequest,
)
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from tenure.model.nodeclaim.state import NodeClaimOutcome, NodeClaimState, Phase
from tests.support.product.eventually import TRANSIENT_STATUSES
from workflows.nodeclaim import NodeClaimWorkflow

MAX_ATTEMPTS = 200
MAX_RUNS = 1000
TIMEOUT_SECONDS = 120.0
"""Real seconds; other tests may use both processors."""
POLL_INTERVAL_SECONDS = 0.05
TASK_TIMEOUT_SECONDS = 20.0
PENDING_TASK_EVENTS = (
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
)
TASK_EVENTS = (
    *PENDING_TASK_EVENTS,
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
)
Handle = WorkflowHandle[NodeClaimWorkflow, Any]
Condition = Callable[[], bool | Awaitable[bool]]


class Clock(Protocol):
    """The time-skipping server, or a harness on one."""

    async def sleep(self, duration: timedelta) -> None: ...


async def wait_until(condition: Condition) -> None:
    """Poll in real time, for conditions that need no timer."""
    deadline, last = time.monotonic() + TIMEOUT_SECONDS, False
    while not await _holds(condition):
        if last:
            raise AssertionError(f"never became true: {condition}")
        await asyncio.sleep(POLL_INTERVAL_SECONDS)
        last = time.monotonic() > deadline


async def _holds(condition: Condition) -> bool:
    """A transient error of the server counts as false."""
    try:
        result = condition()
        return result if isinstance(result, bool) else await result
    except RPCError as error:
        if error.status not in TRANSIENT_STATUSES:
            raise
        return False


async def wait_until_skipping_time(clock: Clock, condition: Condition, **step: float) -> None:
    """Poll while the server's clock advances by a second, or by `step`. At last poll in real time, since the server
    also skips time while a signal is on its way between workflows.
    """
    for _ in range(MAX_ATTEMPTS):
        if await _holds(condition):
            return
        await clock.sleep(timedelta(**(step or {"seconds": 1})))
    await wait_until(condition)


async def query_state(handle: Handle) -> NodeClaimState:
    await wait_until_idle(handle)
    return await handle.query(NodeClaimWorkflow.state)


async def is_stop_in_step(handle: Handle, name: str) -> bool:
    stop = (await query_state(handle)).stop
    return stop is not None and stop.step == name


async def wait_until_idle(handle: WorkflowHandle[Any, Any], *, timeout: float = TIMEOUT_SECONDS) -> None:
    """Wait until no workflow task is pending. A query or signal to a run that just continues as new may be lost. The
    time-skipping server never reports pending tasks, so this waits only for a real server.
    """
    client, deadline = handle._client, time.monotonic() + timeout
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.run_id or "")
    )
    while time.monotonic() < deadline:
        description = await client.workflow_service.describe_workflow_execution(request)
        if not description.HasField("pending_workflow_task"):
            return
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def wait_until_tasks_complete(client: Client, id_prefix: str) -> None:
    """Wait until the open workflows with this ID prefix have no workflow task that is scheduled or started, as far as
    their histories show. Needed after a time skip: the server returns while the task of the last timer still runs.
    """
    deadline = time.monotonic() + TASK_TIMEOUT_SECONDS
    for one in await list_open_runs(client, id_prefix):
        handle = client.get_workflow_handle(one.execution.workflow_id, run_id=one.execution.run_id)
        while await _has_pending_task(handle):
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def list_open_runs(client: Client, id_prefix: str) -> list[WorkflowExecutionInfo]:
    """The time-skipping server has no visibility store, so this lists all of its workflows."""
    request = ListOpenWorkflowExecutionsRequest(namespace=client.namespace, maximum_page_size=MAX_RUNS)
    found = (await client.workflow_service.list_open_workflow_executions(request)).executions
    return [one for one in found if one.execution.workflow_id.startswith(id_prefix)]


async def list_closed_runs(client: Client, id_prefix: str) -> list[WorkflowExecutionInfo]:
    request = ListClosedWorkflowExecutionsRequest(namespace=client.namespace, maximum_page_size=MAX_RUNS)
    found = (await client.workflow_service.list_closed_workflow_executions(request)).executions
    return [one for one in found if one.execution.workflow_id.startswith(id_prefix)]


async def _has_pending_task(handle: WorkflowHandle[Any, Any]) -> bool:
    events = (await handle.fetch_history()).events
    tasks = (event.event_type for event in reversed(events) if event.event_type in TASK_EVENTS)
    return next(tasks, None) in PENDING_TASK_EVENTS


async def wait_until_phase(handle: Handle, phase: Phase) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (state := await query_state(handle)).phase is not phase:
        if time.monotonic() > deadline:
            raise AssertionError(f"never reached {phase}, is in {state.phase}: {state}")
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def is_in_phase(handle: Handle, phase: Phase) -> bool:
    return (await query_state(handle)).phase is phase


async def has_blocker(handle: Handle, text: str) -> bool:
    """A pass of a drain may still be running."""
    return text in (await query_state(handle)).blocked_by


async def is_blocked_by(handle: Handle, text: str) -> bool:
    """The workflow is blocked, and no pass of a drain is running.

    The time-skipping server does not continue a workflow whose task cancels an activity that has just completed
    (ACTIVITY_UNKNOWN). Without this condition, the next signal cancels the short pass after the first blocked one.
    """
    return await has_blocker(handle, text) and not await is_running(handle, "drain_node")


async def is_running(handle: WorkflowHandle[Any, Any], activity: str) -> bool:
    running = set[int]()
    for event in (await handle.fetch_history()).events:
        if event.activity_task_scheduled_event_attributes.activity_type.name == activity:
            running.add(event.event_id)
        for ended in ("completed", "failed", "timed_out", "canceled"):
            running.discard(getattr(event, f"activity_task_{ended}_event_attributes").scheduled_event_id)
    return bool(running)


async def has_state(handle: Handle, **fields: object) -> bool:
    """The workflow's state has these values."""
    state = await query_state(handle)
    return all(getattr(state, name) == value for name, value in fields.items())


async def is_overdue(handle: Handle) -> bool:
    return (await query_state(handle)).overdue


async def count_scheduled(handle: WorkflowHandle[Any, Any], activity: str) -> int:
    """Number of times that a run scheduled this activity."""
    events = (await handle.fetch_history()).events
    return sum(event.activity_task_scheduled_event_attributes.activity_type.name == activity for event in events)


async def has_scheduled(handle: WorkflowHandle[Any, Any], activity: str) -> bool:
    return await count_scheduled(handle, activity) > 0


async def non_task_event_types(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """Event types of a run without workflow tasks, since each query may add one."""
    return [one for one in await _event_types(handle) if not one.startswith("EVENT_TYPE_WORKFLOW_TASK_")]


async def count_completed_tasks(handle: WorkflowHandle[Any, Any]) -> int:
    return (await _event_types(handle)).count("EVENT_TYPE_WORKFLOW_TASK_COMPLETED")


async def _event_types(handle: WorkflowHandle[Any, Any]) -> list[str]:
    return [EventType.Name(event.event_type) for event in (await handle.fetch_history()).events]


async def has_continued_as_new(client: Client, handle: WorkflowHandle[Any, Any]) -> bool:
    """True if the run of this handle has continued as new. On a busy machine the test server omits the last event of
    its history; then the next run names the run that it continues.
    """
    first = client.get_workflow_handle(handle.id, run_id=handle.result_run_id)
    events = (await first.fetch_history()).events
    if events[-1].event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
        return True
    started_event = (await client.get_workflow_handle(handle.id).fetch_history()).events[0]
    return bool(handle.result_run_id) and bool(
        started_event.workflow_execution_started_event_attributes.continued_execution_run_id
    )


def latest_run(client: Client, handle: Handle) -> Handle:
    """A handle of the current run."""
    return client.get_workflow_handle(handle.id, result_type=NodeClaimOutcome)
