"""Initialization: wait until the Node is Ready, has no startup or ephemeral taints, and has its resources.

It follows registration and reboots. After the deadline the node is kept, since its pods may be about to start, unless a
LifecyclePolicy replaces it.
"""

from datetime import datetime, timedelta

from activities.nodeclaim.registration import RegistrationActivities
from tenure.apis import labels
from tenure.model.nodeclaim.requests import InitializationResult
from tenure.model.nodeclaim.state import Phase
from tenure.policy.interruption.decision import InterruptionDecision, next_decision_at
from tenure.policy.lifecycle.deadlines import action_of
from tenure.policy.lifecycle.ready import expiry_of, has_expired, is_under_budget, lacks_registration
from tenure.policy.lifecycle.repair import Repair, decide_repair
from workflows.activity_options import PATCH, execute_unless, with_summary
from workflows.nodeclaim_context import NodeClaimContext
from workflows.outbox import write_condition
from workflows.phases.failure import delete_nodeclaim, fail_nodeclaim, handle_missing_node
from workflows.phases.interruption import decide_for_starting_node, disrupt_for_interruption, must_drain, requires_drain
from workflows.phases.registration import restore_registration
from workflows.phases.repair import repair_node

RECHECK_DELAY = timedelta(seconds=10)
MAX_RECHECK_DELAY = timedelta(minutes=5)
REPORT_DELAY = timedelta(seconds=6)
"""How long a Node must be NotReady before this is written to the condition Initialized. The watch host observes the
blockers of a Ready node after such a delay, so they are written at once."""


async def run_initialization(context: NodeClaimContext) -> Phase:
    checked_number, reported_reason, failed_checks = -1, "", 0
    while True:
        if context.is_deleting:
            context.update_state(disruption="Deleted")
            return Phase.DRAIN
        if requires_drain(decide_for_starting_node(context)):
            return await disrupt_for_interruption(context)
        if _expires_here(context) and has_expired(context.state, context.now):
            context.update_state(disruption="Expired")
            await delete_nodeclaim(context, reason="Expired")
            return Phase.DRAIN
        if context.is_past_deadline() and not context.state.overdue:
            why = _initialization_blocker(context) or context.state.blocked_by
            context.update_state(blocked_by=why, blocked_code=why.partition(":")[0])
            context.mark_overdue()
            reported_reason = why if await _report_blocked(context, why) else ""
        if context.state.overdue and not context.is_alarmed():
            if await _initialize_node(context):
                return Phase.READY
            if must_drain(context):
                continue
            return await _fail_overdue_nodeclaim(context)
        if lacks_registration(context.state):
            await restore_registration(context)
            continue
        if decide_repair(context.state, context.now).do != "wait":
            if await repair_node(context):
                return Phase.DRAIN
            continue
        if _is_complete(context) and context.state.observed.number > checked_number:
            checked_number = context.state.observed.number
            if await _initialize_node(context):
                return Phase.READY
            failed_checks += 1
            continue
        if not context.state.observed.node_name:
            if await handle_missing_node(context, lambda: _next_decision_at(context)):
                return Phase.DRAIN
            continue
        if _is_complete(context):
            await _wait_before_recheck(context, checked_number, failed_checks)
            checked_number = -1
            continue
        reported_reason = await _wait_for_change(context, reported_reason, checked_number)


async def _wait_before_recheck(context: NodeClaimContext, checked_number: int, failed_checks: int) -> None:
    """The API server contradicted the watch: wait with exponential backoff before the next check."""
    pause = min(MAX_RECHECK_DELAY, RECHECK_DELAY * 2 ** min(failed_checks, 6))
    pending_decisions, wakeup_times = _pending_decisions(context), (context.now + pause, _next_decision_at(context))
    await context.wait(
        lambda: (
            context.is_deleting
            or context.state.observed.number > checked_number
            or _pending_decisions(context) != pending_decisions
        ),
        until=min(one for one in wakeup_times if one),
        summary="recheck delay",
    )


async def _fail_overdue_nodeclaim(context: NodeClaimContext) -> Phase:
    """Delete an overdue NodeClaim, with or without a graceful drain according to its LifecyclePolicy."""
    at_once = action_of(context.state.observed.rules, Phase.INITIALIZATION) == "terminate"
    why = context.state.blocked_by or _initialization_blocker(context) or "no known blocker"
    await fail_nodeclaim(
        context, reason="InitializationTimeout", message=f"not initialized in time: {why}", at_once=at_once
    )
    return Phase.DRAIN


async def _wait_for_change(context: NodeClaimContext, reported_reason: str, checked_number: int) -> str:
    """Wait for a change. Returns the blocker that was last reported."""
    why = _initialization_blocker(context)
    is_unreported = bool(why) and why != reported_reason
    pending_decisions = _pending_decisions(context)
    wakeup_times = (
        _report_at(context, why) if is_unreported else context.next_slow_or_overdue_at(),
        _next_decision_at(context),
    )
    deadline_changed = context.watch_deadline()
    has_changed = await context.wait(
        lambda: (
            deadline_changed()
            or context.is_deleting
            or lacks_registration(context.state)
            or not context.state.observed.node_name
            or _initialization_blocker(context) != why
            or (_is_complete(context) and context.state.observed.number > checked_number)
            or _pending_decisions(context) != pending_decisions
        ),
        until=min((one for one in wakeup_times if one), default=None),
        summary="initialization",
    )
    if has_changed:
        return reported_reason
    if is_unreported and (context.state.overdue or not context.is_past_deadline()):
        context.set_blocked_by(why)
        return why if await _report_blocked(context, why) else reported_reason
    context.mark_slow_if_due()
    return reported_reason


def _report_at(context: NodeClaimContext, why: str) -> datetime:
    """When the blocker is written. A write that failed is repeated after the delay."""
    is_new = context.state.blocked_by != why
    return context.now if context.state.observed.node_ready and is_new else context.now + REPORT_DELAY


async def _initialize_node(context: NodeClaimContext) -> bool:
    """False at once if the node must be drained."""
    result: InitializationResult | None = await context.execute_until_done(
        lambda options: execute_unless(
            RegistrationActivities.initialize_node, context.nodeclaim_ref, options, lambda: must_drain(context)
        ),
        with_summary(PATCH, f"initialize {context.state.node_name}"),
    )
    if result is None:
        return False
    if result.outcome == "initialized":
        # A live read may be newer than the watch. With its boot ID, the last observation would show another reboot.
        context.update_state(initialized=True, boot_id=context.state.observed.boot_id or result.boot_id)
        context.update_state(expires=result.expires, lifetime=result.lifetime)
        return True
    if result.outcome == "waiting":
        context.set_blocked_by(result.waiting_for)
    return False


async def _report_blocked(context: NodeClaimContext, why: str) -> bool:
    """Report the blocker in the condition Initialized; after a reboot as an event, since that condition never reverts
    (reference 3.4). False if the report failed."""
    if context.state.initialized:
        message = f"the instance rebooted, and its Node is not Ready yet: {why}"
        context.publish_event(labels.HAS_REBOOTED, message)
        return True
    reason, _, message = why.partition(": ")
    return await write_condition(context, labels.INITIALIZED_CONDITION, reason=reason, message=message)


def _pending_decisions(
    context: NodeClaimContext,
) -> tuple[datetime | None, Repair, InterruptionDecision, datetime | None]:
    """The expiration time, the repair decision, and the decision for AWS events with the time of the next one."""
    state, now = context.state, context.now
    expiry = expiry_of(state) if _expires_here(context) else None
    return expiry, decide_repair(state, now), decide_for_starting_node(context), next_decision_at(state, now)


def _next_decision_at(context: NodeClaimContext) -> datetime | None:
    """When the phase must decide again without a change: its deadline, the expiration, a repair or an AWS event."""
    expiry, repair, _, event_at = _pending_decisions(context)
    deadline = None if context.state.overdue else context.state.deadline
    return min((at for at in (deadline, expiry, repair.until, event_at) if at), default=None)


def _expires_here(context: NodeClaimContext) -> bool:
    """Whether the node expires in this phase, without a permit. A node that was initialized before counts for budgets,
    so with expiration under budget it expires in Ready."""
    return not (context.state.initialized and is_under_budget(context.state))


def _initialization_blocker(context: NodeClaimContext) -> str:
    observed = context.state.observed
    if not observed.node_ready:
        return "NodeNotReady: the kubelet does not report Ready"
    return observed.waiting_for[0] if observed.waiting_for else ""


def _is_complete(context: NodeClaimContext) -> bool:
    return not _initialization_blocker(context)
