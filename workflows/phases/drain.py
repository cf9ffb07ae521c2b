"""Drain: cordon, evict pods through the Eviction API, wait for pods and volumes.

Without a termination grace period, a PodDisruptionBudget or a do-not-disrupt pod may block a drain forever. The
deadline only makes it overdue. A LifecyclePolicy may escalate or cancel it: `tenure/policy/drain/decision.py`. A
blocked drain waits until the watch signals that its pods, their budgets or its volumes changed, or for a timer.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

from activities.nodeclaim.drain import DrainActivities
from tenure.apis.lifecyclepolicy import DrainRules
from tenure.model.disruption.drain import CancelledDrain, DrainState
from tenure.model.nodeclaim.requests import CancelDrainRequest, DrainRequest, DrainResult
from tenure.model.nodeclaim.state import Phase
from tenure.policy.drain.decision import DrainDecision, decide_drain, drain_state_after, retry_drain_at
from tenure.policy.hooks.decision import reset_for_next_drain
from tenure.policy.interruption.decision import next_decision_at
from tenure.policy.lifecycle.ready import drain_rules
from workflows.activity_options import DRAIN, PATCH, RARE_HEARTBEAT, drain_queue_options, poll_timeout, with_summary
from workflows.metrics import count_pods
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.blocked_drain import wait_for_drain_change
from workflows.phases.hooks import run_hooks
from workflows.phases.interruption import (
    EventDrainOptions,
    drain_cancellation_reason,
    end_deferral_if_unblocked,
    event_drain_options,
    ignores_pauses_and_budgets,
    is_superseded,
    switch_to_superseding_event,
)
from workflows.phases.pause import drain_pause_reason
from workflows.phases.ready import release_permit


async def run_drain(context: NodeClaimContext) -> Phase:
    if not await _run_before_drain_hooks(context):
        return _phase_after_cancellation(context)
    decision = DrainDecision(do="wait")
    while True:
        context.continue_as_new_if_suggested()
        await _expedite_if_superseded(context)
        inputs_changed = _watch_inputs(context)
        observed, executed = context.state.observed, decision
        call = partial(_run_drain_activity, context, decision)
        result = await context.execute_until_done(
            call, drain_queue_options(DRAIN, context.state, f"drain {context.state.node_name}")
        )
        if result is not None:
            context.record_evicted_pods(result.evicted_pods)
            _count_disrupted_pods(context, result)
        if result is not None and result.outcome != "waiting":
            context.update_state(drain=None)
            await run_hooks(context, "afterDrain")
            return Phase.TERMINATION
        if result is not None:
            _store_drain_status(context, result)
        decision = _decide_next_step(context)
        if result is not None and _may_wait(context, result, decision, executed):
            await wait_for_drain_change(
                context,
                observed,
                inputs_changed,
                result.next_change_at,
                decision.until,
                event_drain_options(context).blocked_until,
                next_decision_at(context.state, context.now),
                None if context.state.overdue else context.state.deadline,
            )
            decision = _decide_next_step(context)
        if decision.do == "cancel" and await _cancel_drain(context, decision):
            return _phase_after_cancellation(context)
        if context.is_past_deadline():
            context.mark_overdue()


def _phase_after_cancellation(context: NodeClaimContext) -> Phase:
    return Phase.READY if context.state.initialized else Phase.INITIALIZATION


def _count_disrupted_pods(context: NodeClaimContext, result: DrainResult) -> None:
    """Count the pods that the node had at its first drain."""
    if not context.state.pods_counted:
        count_pods(context.state, result.rescheduled_pods)
        context.update_state(pods_counted=True)


def _may_wait(context: NodeClaimContext, result: DrainResult, decision: DrainDecision, executed: DrainDecision) -> bool:
    """False if the next pass does something that the last one did not."""
    drain = context.state.drain
    is_deferral_over = result.defers_deletion and not (drain and drain.defers_deletion)
    return result.is_waiting and decision.do in ("wait", executed.do) and not is_deferral_over


async def _run_before_drain_hooks(context: NodeClaimContext) -> bool:
    """False if the drain is cancelled."""
    while why := await run_hooks(context, "beforeDrain", _cancellation_or_pause_reason):
        if await _cancel_drain(context, DrainDecision(do="cancel", why=why)):
            return False
    return True


async def _run_drain_activity(context: NodeClaimContext, decision: DrainDecision, options: Any) -> DrainResult | None:
    """None if the inputs changed, so that the activity must run again."""
    rules, previous, event_options = drain_rules(context.state), context.state.drain, event_drain_options(context)
    request = DrainRequest(
        claim=context.nodeclaim_ref,
        known_blockers=context.state.blocked_by,
        known=previous.status if previous else None,
        poll_timeout=poll_timeout(
            context.now, decision.until, event_options.blocked_until, next_decision_at(context.state, context.now)
        ).total_seconds(),
        began=context.state.since,
        defers_deletion=bool(previous and previous.defers_deletion),
        escalate=decision.do == "escalate",
        rules=rules,
        pod_rules=event_options.blocked_pods,
        override=event_options.override,
    )
    if not request.cancellable:
        options = {**options, **RARE_HEARTBEAT}
    if previous and previous.defers_deletion:
        # If the drain is cancelled next, an attempt that still runs must not cordon the node again.
        options = {**options, "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED}
    handle = workflow.start_activity_method(DrainActivities.drain_node, request, **options)
    inputs_changed = _watch_inputs(context)
    await workflow.wait_condition(lambda: handle.done() or inputs_changed())
    must_restart = not handle.done()
    if must_restart:
        handle.cancel()
    try:
        result: DrainResult = await handle
        return result
    except ActivityError as error:
        # Do not evaluate the conditions again: the reason for the cancellation may have passed.
        if is_cancelled_exception(error) and must_restart:
            return None
        raise


def _watch_inputs(context: NodeClaimContext) -> Callable[[], bool]:
    """Whether an input of the drain has changed since this call."""

    def inputs() -> tuple[DrainRules | None, EventDrainOptions, datetime | None]:
        state = context.state
        return drain_rules(state), event_drain_options(context), next_decision_at(state, context.now)

    known = inputs()
    return lambda: inputs() != known or bool(_cancellation_or_pause_reason(context)) or is_superseded(context)


async def _expedite_if_superseded(context: NodeClaimContext) -> None:
    """Switch to a more urgent AWS event, if there is one."""
    if is_superseded(context):
        await switch_to_superseding_event(context)
        end_deferral_if_unblocked(context)


def _cancellation_or_pause_reason(context: NodeClaimContext) -> str:
    return drain_cancellation_reason(context) or drain_pause_reason(context)


def _decide_next_step(context: NodeClaimContext) -> DrainDecision:
    """Cancel for a withdrawn AWS event or a pause; otherwise follow the drain rules, which do not cancel a drain that
    AWS forces."""
    end_deferral_if_unblocked(context)
    if why := _cancellation_or_pause_reason(context):
        return DrainDecision(do="cancel", why=why)
    decision = decide_drain(drain_rules(context.state), context.state.drain or DrainState(), context.now)
    return DrainDecision(do="wait") if decision.do == "cancel" and ignores_pauses_and_budgets(context) else decision


def _store_drain_status(context: NodeClaimContext, result: DrainResult) -> None:
    """Publish the status even if `blocked_by` is unchanged, since the details show more."""
    context.update_state(
        drain=drain_state_after(context.state.drain, result.status, defers_deletion=result.defers_deletion)
    )
    if result.blockers == context.state.blocked_by:
        context.publish_status()
    context.set_blocked_by(result.blockers, result.status.blocker_code if result.status else "PodsTerminating")


async def _cancel_drain(context: NodeClaimContext, decision: DrainDecision) -> bool:
    """Uncordon the node and release the permit; False if the NodeClaim is being deleted."""
    rules, pause_reason = drain_rules(context.state), drain_pause_reason(context)
    request = CancelDrainRequest(claim=context.nodeclaim_ref, why=decision.why)
    is_uncordoned = await workflow.execute_activity_method(
        DrainActivities.uncordon_node, request, **with_summary(PATCH, "cancel the drain: keep the node")
    )
    if not is_uncordoned:
        context.update_state(
            drain=context.state.drain.model_copy(update={"defers_deletion": False}) if context.state.drain else None
        )
        return False
    # After a pause or a withdrawn event, the drain may restart immediately.
    retry_at = context.now if pause_reason or drain_cancellation_reason(context) else retry_drain_at(rules, context.now)
    cancelled_drain = CancelledDrain(at=context.now, retry_at=retry_at, why=decision.why)
    context.update_state(
        drain=None,
        cancelled_drain=cancelled_drain,
        disruption="",
        revocation="",
        interrupted="",
        hooks=reset_for_next_drain(context.state.hooks),
    )
    await release_permit(context)
    return True
