"""Operator requests to a workflow, sent as updates."""

import asyncio
from datetime import UTC, datetime, timedelta

from temporalio.client import (
    Client,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from tenure.cli.exit_codes import UsageError
from tenure.controller.temporal.errors import lacks_namespace
from tenure.controller.temporal.pollers import is_unpolled
from tenure.model.base import Message
from tenure.model.signals import OperatorRequestResult
from workflows import ids

UPDATE_TIMEOUT = timedelta(seconds=20)
"""A workflow task may wait 15 s for a stopped worker that has the workflow in its cache."""
_TIMEOUT_STATUSES = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)


class NoResponse(Exception):
    """No worker responded in time."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else f"no worker responded within {UPDATE_TIMEOUT.total_seconds():g} s"


class WorkflowNotFound(Exception):
    """No workflow with this ID is running."""


async def send_update(
    client: Client, workflow_id: str, verb: str, request: Message, *, about: str
) -> OperatorRequestResult:
    """Raises `NoResponse`, `WorkflowNotFound`, RPCError, or for a rejection `UsageError`, which begins with `about`."""
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(workflow_id)
    queue = ids.task_queue(workflow_id.partition("/")[0])
    if await is_unpolled(client, queue, datetime.now(UTC)):
        raise NoResponse(f"no worker polls the task queue {queue}")
    try:
        async with asyncio.timeout(UPDATE_TIMEOUT.total_seconds()):
            result: OperatorRequestResult = await handle.execute_update(
                verb, request, result_type=OperatorRequestResult, rpc_timeout=UPDATE_TIMEOUT
            )
    except WorkflowUpdateFailedError as rejection:
        raise UsageError(f"{about}: {getattr(rejection.cause, 'message', rejection.cause)}") from rejection
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as late:
        raise NoResponse from late
    except RPCError as error:
        if error.status in _TIMEOUT_STATUSES:
            raise NoResponse from error
        raise_if_not_found(error)
        raise
    return result


def raise_if_not_found(error: RPCError) -> None:
    """Raises `WorkflowNotFound` if Temporal has no such workflow, unlike for a missing namespace."""
    if error.status is RPCStatusCode.NOT_FOUND and not lacks_namespace(error):
        raise WorkflowNotFound from error


async def send_update_for_message(
    client: Client, workflow_id: str, verb: str, request: Message, *, about: str, absent: str
) -> str:
    """The message of the result. Raises `UsageError`, which begins with `about`, for a rejection or without a response.

    `absent`: the message if no such workflow is running."""
    try:
        result = await send_update(client, workflow_id, verb, request, about=about)
    except NoResponse as late:
        todo = "run `tenure doctor` to see whether one runs, then repeat the command"
        raise UsageError(f"{about}: {late}, so nothing was changed; {todo}") from None
    except WorkflowNotFound as unknown:
        raise UsageError(f"{about}: {absent}") from unknown
    if not result.accepted:
        raise UsageError(f"{about}: {result.message}")
    return result.message
