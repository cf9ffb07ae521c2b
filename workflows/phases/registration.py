"""Registration: the instance's Node joins and gets the NodeClaim's labels, taints and finalizer.

At the deadline the NodeClaim is deleted (Karpenter's liveness), unless its LifecyclePolicy only raises an alarm.
"""

from datetime import datetime, timedelta

from temporalio.exceptions import ActivityError, RetryState

from activities.nodeclaim.registration import RegistrationActivities
from tenure.apis import labels
from tenure.model.blockers import CALL_FAILED
from tenure.model.nodeclaim.node_identity import REGISTERED_GAP
from tenure.model.nodeclaim.requests import RegistrationResult
from tenure.model.nodeclaim.state import Phase
from tenure.policy.interruption.decision import next_decision_at
from workflows.activity_options import PATCH, execute_unless, with_summary
from workflows.nodeclaim_context import NOT_JOINED, NodeClaimContext
from workflows.outbox import write_condition
from workflows.phases.failure import fail_nodeclaim
from workflows.phases.interruption import (
    disrupt_for_interruption,
    must_drain,
    watch_interruption_decision,
)

RECHECK_DELAY = timedelta(seconds=5)
"""First delay after a live read does not find the Node that the watch reports. It doubles each time."""
MAX_RECHECK_DELAY = timedelta(minutes=1)
OVERDUE_RECHECK_DELAY = timedelta(minutes=10)
"""The maximum delay after the deadline."""
MULTIPLE_NODES = "MultipleNodesFound: more than one Node has this instance's provider ID"


async def run_registration(context: NodeClaimContext) -> Phase:
    checked_number, attempts = -1, 0
    while True:
        while not context.is_past_deadline() or context.is_alarmed():
            retry_at = context.now + _recheck_delay(context, attempts) if attempts else None
            event_at = next_decision_at(context.state, context.now)
            happened = await _wait_for_node(
                context, checked_number, min((one for one in (retry_at, event_at) if one), default=None)
            )
            if next_phase := await _end_early(context):
                return next_phase
            if happened and not _has_joined(context, checked_number):
                continue
            if not happened and retry_at is None:
                if event_at is None or context.is_past_deadline():
                    break
                continue
            checked_number, attempts = context.state.observed.number, attempts + 1
            if await _register_node(context):
                return Phase.INITIALIZATION
        if not context.is_past_deadline():
            continue
        context.mark_overdue()
        if await _register_node(context):
            return Phase.INITIALIZATION
        if next_phase := await _end_early(context):
            return next_phase
        if not context.is_alarmed():
            break
    await fail_nodeclaim(
        context, reason="RegistrationTimeout", message=f"no Node joined: {context.state.blocked_by or 'none seen'}"
    )
    return Phase.TERMINATION


async def _end_early(context: NodeClaimContext) -> Phase | None:
    """The next phase of a NodeClaim that is being deleted, or whose instance AWS interrupts."""
    if context.is_deleting:
        context.update_state(disruption="Deleted")
        return Phase.TERMINATION
    return await disrupt_for_interruption(context) if must_drain(context) else None


def _recheck_delay(context: NodeClaimContext, attempts: int) -> timedelta:
    max_delay = OVERDUE_RECHECK_DELAY if context.is_alarmed() else MAX_RECHECK_DELAY
    doublings: int = 2 ** min(attempts - 1, 10)
    return min(RECHECK_DELAY * doublings, max_delay)


async def _wait_for_node(context: NodeClaimContext, checked_number: int, retry_at: datetime | None) -> bool:
    interruption_changed = watch_interruption_decision(context)
    return await context.wait_until_deadline(
        lambda: must_drain(context) or _has_joined(context, checked_number) or interruption_changed(),
        sooner=retry_at,
        summary="registration deadline",
    )


async def _register_node(context: NodeClaimContext) -> bool:
    """After the deadline, there is one more attempt, since no worker may have run when the Node joined."""
    if context.state.observed.node_count > 1:
        await _report_multiple_nodes(context)
        return False
    context.update_state(node_name=context.state.observed.node_name)
    named_options = with_summary(PATCH, f"register {context.state.node_name or 'the Node that joined'}")
    options = named_options if context.is_past_deadline() else context.bound_by_deadline(named_options)
    try:
        result: RegistrationResult | None = await execute_unless(
            RegistrationActivities.register_node, context.nodeclaim_ref, options, lambda: must_drain(context)
        )
    except ActivityError as error:
        if error.retry_state is not RetryState.TIMEOUT:
            raise
        context.set_blocked_by(str(error.cause or error)[:200], CALL_FAILED)
        return False
    if result is None:
        return False
    match result.outcome:
        case "registered":
            context.update_state(registered=True, node_name=result.node_name, boot_id=result.boot_id)
            context.update_state(expires=result.expires, lifetime=result.lifetime)
            return True
        case "several nodes":
            await _report_multiple_nodes(context)
        case "no node":
            context.set_blocked_by(NOT_JOINED)
        case "gone":
            context.update_state(observed=context.state.observed.model_copy(update={"exists": False}))
    return False


async def restore_registration(context: NodeClaimContext) -> bool:
    """Register a Node that its kubelet created again, or restore removed parts of it. True if the Node is new. False
    at once if the node must be drained."""
    observed = context.state.observed
    context.update_state(node_name=observed.node_name)
    result: RegistrationResult | None = await execute_unless(
        RegistrationActivities.register_node,
        context.nodeclaim_ref,
        with_summary(PATCH, f"register {observed.node_name} again"),
        lambda: must_drain(context),
    )
    if result is None:
        return False
    context.update_state(registration_checked=observed.number)
    if result.outcome == "gone":
        context.update_state(observed=context.state.observed.model_copy(update={"exists": False}))
    if result.outcome != "registered":
        return False
    context.update_state(node_name=result.node_name)
    gaps = ", ".join(observed.registration_gaps)
    context.publish_event("RegistrationRestored", f"registered Node {result.node_name} again; it lacked: {gaps}")
    return REGISTERED_GAP in observed.registration_gaps


async def _report_multiple_nodes(context: NodeClaimContext) -> None:
    """Report it once, also in the condition Registered (reference 3.3)."""
    if context.state.blocked_by == MULTIPLE_NODES:
        return
    reason, _, message = MULTIPLE_NODES.partition(": ")
    if await write_condition(context, labels.REGISTERED_CONDITION, status="False", reason=reason, message=message):
        context.set_blocked_by(MULTIPLE_NODES)


def _has_joined(context: NodeClaimContext, checked_number: int) -> bool:
    observed = context.state.observed
    return bool(observed.node_name) and observed.number > checked_number
