"""Workflow queries that may fail. Commands import it, so it imports no logging."""

from datetime import timedelta
from typing import Final, TypeVar

from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from tenure.model.base import Message
from tenure.model.errors import InvalidObjectReport
from workflows import ids

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


async def query_invalid_objects(temporal: Client, cluster: str) -> InvalidObjectReport:
    """Objects that the controller cannot read; empty if no worker responds."""
    found = await query_or_none(temporal, ids.watch(cluster), "invalid_objects", InvalidObjectReport)
    return found or InvalidObjectReport()
