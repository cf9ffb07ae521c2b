"""Recovery, the first step of launch: a workflow that is younger than its NodeClaim reads the state of the node.

Temporal's database may have been lost, or a run terminated. The sources are the NodeClaim and EC2, which are read
before any launch.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.nodeclaim.recovery import RecoveryActivities
from tenure.model.nodeclaim.state import Phase
from workflows.activity_options import PATCH, with_summary
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.interruption import recover_interruption_messages
from workflows.phases.status_reports import recover_not_ready_intervals

MAX_START_DELAY = timedelta(seconds=30)
"""A workflow that starts this soon after its NodeClaim was created is the first one."""


def needs_recovery(context: NodeClaimContext) -> bool:
    """Whether launch has not started yet, and the NodeClaim is old, has a provider ID, or is being deleted. The watch
    reports no provider ID of a NodeClaim that is being deleted."""
    state = context.state
    is_untouched = state.group is None and state.launched is None and state.rejection is None
    if not is_untouched or state.since is None:
        return False
    has_progressed = state.observed.deleting or bool(state.observed.provider_id)
    return state.since - state.identity.created > MAX_START_DELAY or has_progressed


async def recover_state(context: NodeClaimContext) -> Phase | None:
    """The phase to continue with; None if no instance is known."""
    recovered = await workflow.execute_activity_method(
        RecoveryActivities.recover_state,
        context.nodeclaim_ref,
        **with_summary(PATCH, "read the state of the NodeClaim and its instance"),
    )
    if recovered.launched is None:
        return None
    context.update_state(
        launched=recovered.launched,
        node_name=recovered.node_name,
        registered=recovered.registered,
        initialized=recovered.initialized,
        boot_id=recovered.boot_id,
        expires=recovered.expires,
        lifetime=recovered.lifetime,
        drift=recovered.drift,
        drift_message=recovered.drift_message,
        reported_attention=recovered.reported_attention,
    )
    recover_not_ready_intervals(context, recovered.not_ready_intervals)
    recover_interruption_messages(context, recovered.interruptions)
    if recovered.initialized:
        return Phase.READY
    return Phase.INITIALIZATION if recovered.registered else Phase.REGISTRATION


async def nodeclaim_exists(context: NodeClaimContext) -> bool:
    """Live read before an irreversible deletion. True if the read fails."""
    try:
        return await workflow.execute_activity_method(
            RecoveryActivities.nodeclaim_exists,
            context.nodeclaim_ref,
            **with_summary(PATCH, "check whether the NodeClaim exists"),
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return True
