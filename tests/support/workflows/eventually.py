"""Waiting in tests for what a workflow is about to do."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from tenure.model.nodeclaim.state import NodeClaimOutcome, NodeClaimState, Phase
from tests.support.product.eventually import TRANSIENT_STATUSES
from workflows.nodeclaim import NodeClaimWorkflow

MAX_ATTEMPTS = 200
TIMEOUT_SECONDS = 120.0
"""Real seconds; the tests beside these may have both processors."""
POLL_INTERVAL_SECONDS = 0.05
Handle = WorkflowHandle[NodeClaimWorkflow, Any]
Condition = Callable[[], bool | Awaitable[bool]]


class Clock(Protocol):
    """The time-skipping server, or a harness on one."""

    async def sleep(self, duration: timedelta) -> None: ...


async def wait_until(condition: Condition) -> None:
    """Looks again and again in real time: for what follows without a timer."""
    deadline, last = time.monotonic() + TIMEOUT_SECONDS, False
    while not await _holds(condition):
        if last:
            raise AssertionError(f"never came to hold: {condition}")
        await asyncio.sleep(POLL_INTERVAL_SECONDS)
        last = time.monotonic() > deadline


async def _holds(condition: Condition) -> bool:
    """A server that did not answer in time was no look."""
    try:
        result = condition()
        return result if isinstance(result, bool) else await result
    except RPCError as error:
        if error.status not in TRANSIENT_STATUSES:
            raise
        return False


async def wait_until_skipping_time(clock: Clock, condition: Condition, **step: float) -> None:
    """Looks again and again while the server's clock moves on by a second, or by `step`; at last without moving it:
    the server skips time also while a word is on its way from one workflow to another."""
    for _ in range(MAX_ATTEMPTS):
        if await _holds(condition):
            return
        await clock.sleep(timedelta(**(step or {"seconds": 1})))
    await wait_until(condition)


async def query_state(handle: Handle) -> NodeClaimState:
    await wait_until_idle(handle)
    return await handle.query(NodeClaimWorkflow.state)


async def wait_until_idle(handle: WorkflowHandle[Any, Any], *, timeout: float = TIMEOUT_SECONDS) -> None:
    """No workflow task is under way. What is asked or told of a run that is just being continued may be lost. Only a
    real server says whether one is pending: the time-skipping one never does, so that nothing is waited for there."""
    client, deadline = handle._client, time.monotonic() + timeout
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.run_id or "")
    )
    while time.monotonic() < deadline:
        description = await client.workflow_service.describe_workflow_execution(request)
        if not description.HasField("pending_workflow_task"):
            return
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def wait_until_phase(handle: Handle, phase: Phase) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (state := await query_state(handle)).phase is not phase:
        if time.monotonic() > deadline:
            raise AssertionError(f"never reached {phase}, is in {state.phase}: {state}")
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def is_in_phase(handle: Handle, phase: Phase) -> bool:
    return (await query_state(handle)).phase is phase


async def is_blocked_by(handle: Handle, text: str) -> bool:
    return text in (await query_state(handle)).blocked_by


async def has_state(handle: Handle, **fields: object) -> bool:
    """Its state has these values."""
    state = await query_state(handle)
    return all(getattr(state, name) == value for name, value in fields.items())


async def is_overdue(handle: Handle) -> bool:
    return (await query_state(handle)).overdue


async def count_scheduled(handle: WorkflowHandle[Any, Any], activity: str) -> int:
    """How often a run asked for an activity of this name."""
    events = (await handle.fetch_history()).events
    return sum(event.activity_task_scheduled_event_attributes.activity_type.name == activity for event in events)


async def non_task_event_types(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """The types of a run's events without its workflow tasks, of which each query may bring one more."""
    return [one for one in await _event_types(handle) if not one.startswith("EVENT_TYPE_WORKFLOW_TASK_")]


async def count_completed_tasks(handle: WorkflowHandle[Any, Any]) -> int:
    return (await _event_types(handle)).count("EVENT_TYPE_WORKFLOW_TASK_COMPLETED")


async def _event_types(handle: WorkflowHandle[Any, Any]) -> list[str]:
    return [EventType.Name(event.event_type) for event in (await handle.fetch_history()).events]


async def has_continued_as_new(client: Client, handle: WorkflowHandle[Any, Any]) -> bool:
    """The run that the handle was made with has continued as new. Its own history may not say so: on a busy machine the
    test server leaves out its end, and the next run says whom it continues."""
    first = client.get_workflow_handle(handle.id, run_id=handle.result_run_id)
    events = (await first.fetch_history()).events
    if events[-1].event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
        return True
    started_event = (await client.get_workflow_handle(handle.id).fetch_history()).events[0]
    return bool(handle.result_run_id) and bool(
        started_event.workflow_execution_started_event_attributes.continued_execution_run_id
    )


def latest_run(client: Client, handle: Handle) -> Handle:
    """Whichever run of a life is open now."""
    return client.get_workflow_handle(handle.id, result_type=NodeClaimOutcome)
