"""Pauses of a node, and permits that its NodePool revokes.

An unused permit is released, and a drain that has not deleted its NodeClaim is cancelled. A deletion of the NodeClaim
taints the Node first, so the taint must be removed if the deletion is stopped.
"""

from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from tenure.model.disruption.commands import PermitRevoked
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.operator_requests import PauseAnnotationRequest
from tenure.policy.lifecycle.pauses import describe_pause, is_pause_active
from workflows.activity_options import PATCH, with_summary
from workflows.nodeclaim_context import NodeClaimContext
from workflows.pausable import PauseController
from workflows.phases.interruption import ignores_pauses_and_budgets


def create_pause_controller(context: NodeClaimContext) -> PauseController:
    return PauseController(
        lambda: _annotation_target(context.state),
        lambda: context.state,
        context.update_state,
        on_changed=context.publish_status,
        on_pause=lambda why: _request_permit_revocation(context, why),
        describe_effect=lambda: _irreversible_drain_message(context.state),
        sets_attribute=False,
    )


def handle_permit_revoked(context: NodeClaimContext, why: str) -> None:
    """Drop a permit that the NodePool revoked. A drain that has just used it is cancelled if possible."""
    permit = context.state.permit
    if context.state.phase is Phase.DRAIN:
        context.update_state(revocation=why)
    elif permit and permit.granted:
        context.update_state(permit=None, permit_requested_at=None, revocation=why)


def is_disruption_blocked(context: NodeClaimContext) -> bool:
    """Whether voluntary disruption may not start or be retried."""
    return is_pause_active(context.state.pause, context.now) or bool(context.state.revocation)


def drain_pause_reason(context: NodeClaimContext) -> str:
    """Why a pause cancels the drain; empty if the drain continues."""
    state = context.state
    if state.drain is None or not state.drain.defers_deletion or ignores_pauses_and_budgets(context):
        return ""
    if is_pause_active(state.pause, context.now) and state.pause:
        return f"NodeClaim {context.name} {describe_pause(state.pause)}"
    return state.revocation


def _annotation_target(state: NodeClaimState) -> PauseAnnotationRequest:
    return PauseAnnotationRequest(
        kind="NodeClaim", name=state.identity.name, uid=state.identity.uid, node_name=state.observed.node_name
    )


def _irreversible_drain_message(state: NodeClaimState) -> str:
    if state.phase in (Phase.DRAIN, Phase.TERMINATION) and not (state.drain and state.drain.defers_deletion):
        return "Its NodeClaim is being deleted, which cannot be undone: the deletion continues"
    return ""


async def _request_permit_revocation(context: NodeClaimContext, why: str) -> None:
    """Revoke permits that a disruption command has for this node. A NodePool without a workflow has granted none."""
    if context.state.identity.pool:
        await context.signal_nodepool("revoke_permits", PermitRevoked(claim_uid=context.uid, why=why))


RESTORE_TIMEOUT: Final = timedelta(seconds=30)
"""Time limit of an attempt, since another disruption may become due in the meantime."""
RESTORE_RETRY_AFTER: Final = timedelta(minutes=1)


async def restore_schedulable(context: NodeClaimContext) -> bool:
    """Make the Node schedulable again; True if this was needed and succeeded. The caller retries a failure."""
    if not context.state.out_of_service:
        return False
    options = {**with_summary(PATCH, "return the node to service"), "schedule_to_close_timeout": RESTORE_TIMEOUT}
    try:
        await workflow.execute_activity_method(
            DisruptionActivities.restore_schedulable, context.nodeclaim_ref, **options
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return False
    context.update_state(out_of_service=False)
    return True


def limit_to_restore_retry(context: NodeClaimContext, until: datetime | None) -> datetime | None:
    """`until`, or the next attempt to make the Node schedulable if that is earlier."""
    retry_at = context.now + RESTORE_RETRY_AFTER if context.state.out_of_service else None
    return min((one for one in (until, retry_at) if one is not None), default=None)
