"""Waiting in tests for what a workflow is about to do."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from tenure.model.nodeclaim_state import ClaimOutcome, ClaimState, Phase
from tests.support.product.eventually import NO_ANSWER
from workflows.nodeclaim import NodeClaimWorkflow

TRIES = 200
PATIENCE = 120.0
"""Real seconds; the tests beside these may have both processors."""
LOOK_EVERY = 0.05
Handle = WorkflowHandle[NodeClaimWorkflow, Any]


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Looks again and again in real time: for what follows without a timer."""
    give_up, last = time.monotonic() + PATIENCE, False
    while not await _found(holds):
        if last:
            raise AssertionError(f"never came to hold: {holds}")
        await asyncio.sleep(LOOK_EVERY)
        last = time.monotonic() > give_up


async def _found(holds: Callable[[], Awaitable[bool]]) -> bool:
    """A server that did not answer in time was no look."""
    try:
        return await holds()
    except RPCError as error:
        if error.status not in NO_ANSWER:
            raise
        return False


async def in_time(skipping: WorkflowEnvironment, holds: Callable[[], Awaitable[bool]], **step: float) -> None:
    """Looks again and again while the server's clock moves on by a second, or by `step`; at last without moving it:
    the server skips time also while a word is on its way from one workflow to another."""
    for _ in range(TRIES):
        if await _found(holds):
            return
        await skipping.sleep(timedelta(**(step or {"seconds": 1})))
    await eventually(holds)


async def state_of(handle: Handle) -> ClaimState:
    await idle(handle)
    return await handle.query(NodeClaimWorkflow.state)


async def idle(handle: WorkflowHandle[Any, Any], *, patience: float = PATIENCE) -> None:
    """No workflow task is under way. What is asked or told of a run that is just being continued may be lost. Only a
    real server says whether one is pending: the time-skipping one never does, so that nothing is waited for there."""
    client, give_up = handle._client, time.monotonic() + patience
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.run_id or "")
    )
    while time.monotonic() < give_up:
        answer = await client.workflow_service.describe_workflow_execution(request)
        if not answer.HasField("pending_workflow_task"):
            return
        await asyncio.sleep(LOOK_EVERY)


async def in_phase(handle: Handle, phase: Phase) -> None:
    give_up = time.monotonic() + PATIENCE
    while (state := await state_of(handle)).phase is not phase:
        if time.monotonic() > give_up:
            raise AssertionError(f"never reached {phase}, is in {state.phase}: {state}")
        await asyncio.sleep(LOOK_EVERY)


async def has_come(handle: Handle, phase: Phase) -> bool:
    return (await state_of(handle)).phase is phase


async def blocked(handle: Handle, text: str) -> bool:
    return text in (await state_of(handle)).blocked_by


async def overdue(handle: Handle) -> bool:
    return (await state_of(handle)).overdue


async def scheduled(handle: WorkflowHandle[Any, Any], activity: str) -> int:
    """How often a run asked for an activity of this name."""
    events = (await handle.fetch_history()).events
    return sum(event.activity_task_scheduled_event_attributes.activity_type.name == activity for event in events)


async def own_events(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """The types of a run's events without its workflow tasks, of which each query may bring one more."""
    return [one for one in await _types(handle) if not one.startswith("EVENT_TYPE_WORKFLOW_TASK_")]


async def tasks_done(handle: WorkflowHandle[Any, Any]) -> int:
    return (await _types(handle)).count("EVENT_TYPE_WORKFLOW_TASK_COMPLETED")


async def _types(handle: WorkflowHandle[Any, Any]) -> list[str]:
    return [EventType.Name(event.event_type) for event in (await handle.fetch_history()).events]


async def rolled(client: Client, handle: WorkflowHandle[Any, Any]) -> bool:
    """The run that the handle was made with has continued as new. Its own history may not say so: on a busy machine the
    test server leaves out its end, and the next run says whom it continues."""
    first = client.get_workflow_handle(handle.id, run_id=handle.result_run_id)
    events = (await first.fetch_history()).events
    if events[-1].event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
        return True
    began = (await client.get_workflow_handle(handle.id).fetch_history()).events[0]
    return bool(handle.result_run_id) and bool(
        began.workflow_execution_started_event_attributes.continued_execution_run_id
    )


def latest(client: Client, handle: Handle) -> Handle:
    """Whichever run of a life is open now."""
    return client.get_workflow_handle(handle.id, result_type=ClaimOutcome)
