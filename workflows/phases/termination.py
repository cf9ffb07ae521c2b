"""Termination, the last phase: EC2 terminates the instance, then the Node and the NodeClaim's finalizer are removed."""

from typing import Any

from temporalio import workflow

from activities.nodeclaim.instance import InstanceActivities
from tenure.model.nodeclaim.requests import TerminationRequest
from tenure.model.nodeclaim.state import Phase
from workflows.activity_options import RARE_HEARTBEAT, TERMINATE, drain_queue_options
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.hooks import run_hooks


async def run_termination(context: NodeClaimContext) -> Phase:
    """Terminate even if no instance is known, since the NodeClaim's status may have one."""
    if context.state.launched is not None:
        await run_hooks(context, "beforeTerminate")
    options = drain_queue_options({**TERMINATE, **RARE_HEARTBEAT}, context.state, "terminate the instance")
    await context.execute_until_done(lambda options: _terminate_instance(context, options), options)
    return Phase.DELETED


async def _terminate_instance(context: NodeClaimContext, options: Any) -> None:
    """Build the request for each attempt, since the launch result may have arrived in the meantime."""
    request = TerminationRequest(claim=context.nodeclaim_ref, reason=context.state.disruption or "Deleted")
    await workflow.execute_activity_method(InstanceActivities.terminate_instance, request, **options)
