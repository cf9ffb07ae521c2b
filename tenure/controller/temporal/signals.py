"""Workflow signals that may fail."""

from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from tenure.model.base import Message

log = structlog.get_logger(__name__)


async def try_signal(temporal: Client, workflow_id: str, name: str, argument: Message, timeout: timedelta) -> bool:
    """Whether Temporal accepted the signal. A rejection is logged."""
    try:
        await temporal.get_workflow_handle(workflow_id).signal(name, argument, rpc_timeout=timeout)
    except RPCError as error:
        log.warning("signal not accepted", workflow=workflow_id, signal=name, error=str(error))
        return False
    return True
