"""Workflow queries and signals that may fail."""

from datetime import timedelta
from typing import Final, TypeVar

import structlog
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from tenure.model.base import Message
from tenure.model.errors import InvalidObjectReport
from workflows import ids

log = structlog.get_logger(__name__)

M = TypeVar("M", bound=Message)

TIMEOUT: Final = timedelta(seconds=5)


async def query_or_none(
    temporal: Client, workflow_id: str, query: str, result_type: type[M], timeout: timedelta = TIMEOUT
) -> M | None:
    """None if no workflow runs, no worker responds, or its build does not know the query."""
    handle = temporal.get_workflow_handle(workflow_id)
    try:
        found: M = await handle.query(query, result_type=result_type, rpc_timeout=timeout)
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    return found


async def try_signal(temporal: Client, workflow_id: str, name: str, argument: Message, timeout: timedelta) -> bool:
    """Whether Temporal accepted the signal. A rejection is logged."""
    try:
        await temporal.get_workflow_handle(workflow_id).signal(name, argument, rpc_timeout=timeout)
    except RPCError as error:
        log.warning("signal not accepted", workflow=workflow_id, signal=name, error=str(error))
        return False
    return True


async def query_invalid_objects(temporal: Client, cluster: str) -> InvalidObjectReport:
    """Objects that the controller cannot read; empty if no worker responds."""
    found = await query_or_none(temporal, ids.watch(cluster), "invalid_objects", InvalidObjectReport)
    return found or InvalidObjectReport()
