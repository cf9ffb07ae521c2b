"""Ready: the node runs pods. Voluntary disruption starts only here.

`tenure/policy/lifecycle/ready.py` decides; this module executes the decision and waits until it changes.
"""

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from tenure.apis import labels
from tenure.model.blockers import CALL_FAILED
from tenure.model.disruption.drain import DrainState
from tenure.model.nodeclaim.requests import DisruptionResult, NodeClaimDisruptionRequest
from tenure.model.nodeclaim.state import Phase
from tenure.model.signals import DisruptionReason, PermitRelease, PermitRequest, PermitResult
from tenure.policy.drain.decision import can_cancel_drain
from tenure.policy.hooks.rules import can_hook_cancel_drain as hooks_defer_deletion
from tenure.policy.interruption.decision import decide_interruption
from tenure.policy.lifecycle.ready import (
    EMPTY,
    EXPIRED,
    INTERRUPTED,
    PERMIT,
    UNHEALTHY,
    ReadyDecision,
    decide_ready,
    drain_rules,
    expiry_of,
    is_empty_node_needed,
    next_involuntary_at,
)
from workflows.activity_options import PATCH, execute_unless, with_summary
from workflows.metrics import count_empty
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.failure import delete_nodeclaim, handle_missing_node, handle_not_ready_node, watch_observed
from workflows.phases.interruption import disrupt_for_interruption, event_drain_options
from workflows.phases.pause import is_disruption_blocked, limit_to_restore_retry, restore_schedulable
from workflows.phases.registration import restore_registration
from workflows.phases.repair import repair_node
from workflows.phases.stop_start import stop_and_start

_INVOLUNTARY_REASONS: Final[dict[str, DisruptionReason]] = {
    EXPIRED: EXPIRED,
    INTERRUPTED: INTERRUPTED,
    UNHEALTHY: UNHEALTHY,
}
"""Permit reasons that do not require an empty node."""
_NON_DISRUPTIVE_ACTIONS: Final = ("wait", "ask", "withdraw")
RECHECK_DELAY = timedelta(seconds=10)
MAX_RECHECK_DELAY = timedelta(minutes=10)
"""The API server contradicted the watch: decide again after a change, or after RECHECK_DELAY, which doubles."""


async def run_ready(context: NodeClaimContext) -> Phase:
    failed_checks = 0
    while True:
        decision = decide_ready(context.state, context.now)
        if decision.do in _NON_DISRUPTIVE_ACTIONS and await restore_schedulable(context):
            continue
        match decision.do:
            case "drain":
                context.update_state(disruption=context.state.disruption or decision.why, drain=None)
                return Phase.DRAIN
            case "interrupt":
                next_phase = await _handle_interruption(context)
                if next_phase is not None:
                    return next_phase
            case "register":
                if await restore_registration(context):
                    return Phase.INITIALIZATION
            case "initialize":
                context.update_state(reboots=context.state.reboots + 1)
                return Phase.INITIALIZATION
            case "expire":
                context.update_state(disruption=EXPIRED)
                await delete_nodeclaim(context, reason=EXPIRED)
                return Phase.DRAIN
            case "ask":
                await _request_permit(context, decision)
            case "withdraw":
                await release_permit(context)
            case "disrupt":
                if await _delete_with_permit(context, decision):
                    return Phase.DRAIN
                context.update_state(interrupted="")
                await restore_schedulable(context)
                failed_checks = 0 if await _wait_before_recheck(context, failed_checks) else failed_checks + 1
            case "look":
                if await (
                    handle_missing_node(context, lambda: next_involuntary_at(context.state, context.now))
                    if not context.state.observed.node_name
                    else handle_not_ready_node(context)
                ):
                    return Phase.DRAIN
            case "repair":
                if await repair_node(context):
                    return Phase.DRAIN
            case "wait":
                await _wait_for_change(context, decision)


async def _handle_interruption(context: NodeClaimContext) -> Phase | None:
    """The next phase; None if the decision must be made again."""
    event = decide_interruption(context.state, context.now)
    return await stop_and_start(context, event.key) if event.do == "stop" else await disrupt_for_interruption(context)


async def _wait_for_change(context: NodeClaimContext, decision: ReadyDecision) -> None:
    """Wait until the decision changes. An observation that does not change it keeps the timer."""
    permit = context.state.permit
    is_rejected = bool(decision.blocked_by) and permit is not None and not permit.granted
    if is_rejected and decision.blocked_by != context.state.blocked_by:
        _report_blocked(context, decision.blocked_by)
    context.update_state(waits_until=decide_interruption(context.state, context.now).until)
    if decision.blocked_by:
        context.set_blocked_by(decision.blocked_by, decision.blocked_code)
    else:
        context.set_blocked_by(_previous_blocked_by(context, decision), context.state.blocked_code)
    await context.wait(
        lambda: decide_ready(context.state, context.now) != decision,
        until=limit_to_restore_retry(context, decision.until),
        summary=decision.why or ("the next check of its instance" if context.state.unready_since else "expiry"),
    )


def _previous_blocked_by(context: NodeClaimContext, decision: ReadyDecision) -> str:
    """The earlier blocker, while a rejected request is repeated."""
    state = context.state
    is_repeated_request = decision.why == PERMIT and state.permit is None and state.permit_retries > 0
    return state.blocked_by if is_repeated_request and state.blocked_by else ""


def _report_blocked(context: NodeClaimContext, why: str) -> None:
    """Karpenter's condition and event for a node whose disruption is blocked (reference 3.9, 5.2)."""
    consolidatable = labels.CONSOLIDATABLE if context.state.permit_for == EMPTY else ""
    context.publish_event("DisruptionBlocked", why, condition=consolidatable, status="True")


async def _request_permit(context: NodeClaimContext, decision: ReadyDecision) -> None:
    reason = _INVOLUNTARY_REASONS.get(decision.why, EMPTY)
    since = (
        context.state.observed.empty_since
        if reason == EMPTY
        else expiry_of(context.state)
        if reason == EXPIRED
        else None
    )
    request = PermitRequest(
        claim_name=context.name,
        claim_uid=context.uid,
        workflow_id=workflow.info().workflow_id,
        reason=reason,
        since=since or context.now,
    )
    context.update_state(
        permit=None,
        permit_requested_at=context.now,
        permit_for=reason,
        revocation="",
        permit_retries=_count_requests(context, reason),
    )
    context.set_current_details()
    if not await context.signal_nodepool("request_permit", request):
        rejection = PermitResult(granted=False, reason=reason, blocked_by="the NodePool has no workflow yet")
        context.update_state(permit=rejection)


def _count_requests(context: NodeClaimContext, reason: DisruptionReason) -> int:
    state = context.state
    if state.permit_requested_at is None or state.permit_for != reason:
        return 0
    is_rejected = state.permit is not None and not state.permit.granted
    return state.permit_retries + 1 if is_rejected else state.permit_retries


async def release_permit(context: NodeClaimContext) -> None:
    """Release the permit, or withdraw the request for one."""
    context.update_state(permit=None, permit_requested_at=None, blocked_by="")
    release = PermitRelease(claim_uid=context.uid, workflow_id=workflow.info().workflow_id)
    await context.signal_nodepool("release_permit", release)


async def _delete_with_permit(context: NodeClaimContext, decision: ReadyDecision) -> bool:
    """Delete the NodeClaim if live state confirms it while the permit is valid; otherwise release the permit."""
    options = with_summary(PATCH, f"delete the NodeClaim: {decision.why}")
    permit = context.state.permit
    if permit and permit.until:
        options = {**options, "schedule_to_close_timeout": permit.until - context.now}
    event = decide_interruption(context.state, context.now) if decision.why == INTERRUPTED else None
    reason, event_key = event.reason if event else decision.why, event.key if event else ""
    context.update_state(interrupted=event_key, out_of_service=True)
    defers_deletion = (
        can_cancel_drain(drain_rules(context.state))
        or hooks_defer_deletion(context.state.observed.rules)
        or bool(event_drain_options(context).blocked_pods)
    )
    request = NodeClaimDisruptionRequest(
        claim=context.nodeclaim_ref,
        reason=reason,
        voluntary=decision.why not in _INVOLUNTARY_REASONS,
        defers_deletion=defers_deletion,
    )

    def is_withdrawn() -> bool:
        is_needed = decision.why == EMPTY and is_empty_node_needed(context.state, context.now)
        return is_needed or is_disruption_blocked(context)

    try:
        result: DisruptionResult | None = await execute_unless(
            DisruptionActivities.disrupt_nodeclaim, request, options, is_withdrawn
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        await release_permit(context)
        context.set_blocked_by(str(error.cause or error)[:200], CALL_FAILED)
        return False
    if result is None:
        return False
    if result.outcome != "not now":
        context.update_state(
            disruption=reason, drain=DrainState(defers_deletion=True) if defers_deletion else None, out_of_service=False
        )
        if decision.why == EMPTY:
            count_empty(context.state.identity.pool)
        return True
    context.update_state(out_of_service=False)
    await release_permit(context)
    context.set_blocked_by(result.why, "LiveStateDiffers")
    return False


async def _wait_before_recheck(context: NodeClaimContext, failed_checks: int) -> bool:
    """True after a new observation. Without one, the watch may stay wrong, so the delay doubles."""
    pause = min(MAX_RECHECK_DELAY, RECHECK_DELAY * 2 ** min(failed_checks, 6))
    is_observed, decision_at = watch_observed(context), next_involuntary_at(context.state, context.now)
    return await context.wait(
        lambda: is_observed() or next_involuntary_at(context.state, context.now) != decision_at,
        until=min(one for one in (context.now + pause, decision_at) if one),
        summary="the node is in use",
    )
