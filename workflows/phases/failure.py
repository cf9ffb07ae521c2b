"""Deletion of failed NodeClaims, checks of missing and NotReady Nodes, and signals to waiting workflows."""

from collections.abc import Callable
from datetime import datetime

from temporalio import workflow

from activities.disruption import DisruptionActivities
from activities.nodeclaim.instance import InstanceActivities
from tenure.apis import labels
from tenure.model.nodeclaim.requests import DisruptionResult, InstanceStatus, NodeClaimDisruptionRequest
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import StartupOutcome
from tenure.policy.disruption.commands import replacement_status
from tenure.policy.interruption.decision import ACTING, decide_interruption, requires_action
from tenure.policy.lifecycle.missing_nodes import (
    blocker_of,
    deletion_due_at,
    describe_missing_node,
    missing_node_action,
)
from tenure.policy.lifecycle.ready import check_interval
from tenure.policy.nodepool import counts_as_failure
from workflows.activity_options import PATCH, execute_unless, try_signal, with_summary
from workflows.nodeclaim_context import NodeClaimContext


async def fail_nodeclaim(context: NodeClaimContext, *, reason: str, message: str, at_once: bool = False) -> bool:
    """Publish the reason as an event and delete the NodeClaim. Its conditions keep their last values. False if live
    state contradicts the reason."""
    context.update_state(disruption=reason)
    context.publish_event(reason, message)
    await _report_startup_failure(context, reason=reason, message=message)
    if await delete_nodeclaim(context, reason=reason, at_once=at_once):
        return True
    context.update_state(disruption="")
    return False


async def _report_startup_failure(context: NodeClaimContext, *, reason: str, message: str) -> None:
    """Signal the NodePool workflow, if it runs, for the condition NodeRegistrationHealthy."""
    state = context.state
    rejection_reason = state.rejection.reason if state.rejection else ""
    if not state.identity.pool or not counts_as_failure(state.phase, reason, rejection_reason):
        return
    why = (rejection_reason or labels.LAUNCH_FAILED) if state.phase is Phase.LAUNCH else labels.REGISTRATION_FAILED
    failed = StartupOutcome(uid=context.uid, at=context.now, reason=why, message=f"{context.name}: {message}"[:300])
    await context.signal_nodepool("startup_failed", failed)


async def delete_nodeclaim(context: NodeClaimContext, *, reason: str, at_once: bool = False) -> bool:
    """Delete the NodeClaim without a permit. `at_once`: its termination grace period ends now. False if live state
    contradicts the reason."""
    request = NodeClaimDisruptionRequest(claim=context.nodeclaim_ref, reason=reason, voluntary=False, at_once=at_once)
    result: DisruptionResult = await workflow.execute_activity_method(
        DisruptionActivities.disrupt_nodeclaim, request, **with_summary(PATCH, f"delete the NodeClaim: {reason}")
    )
    return result.outcome != "not now"


async def handle_missing_node(context: NodeClaimContext, next_decision_at: Callable[[], datetime | None]) -> bool:
    """Delete the NodeClaim if its instance is gone too, or if the deadline has passed and the Node has not returned
    unobserved; otherwise wait for a change. True if deleted.

    `next_decision_at`: when the phase must decide again without a change.
    """
    before, must_act = context.state.observed, _watch_actions(context)
    if await _fail_if_instance_terminated(context, "the Node and its instance are gone", must_act):
        return True
    if must_act():
        return False
    due = deletion_due_at(context.state, context.now)
    is_due = due is not None and context.now >= due
    if is_due:
        at_once = missing_node_action(context.state.observed.rules) == "terminate"
        message = describe_missing_node(context.state)
        if await fail_nodeclaim(context, reason=labels.NODE_NOT_FOUND, message=message, at_once=at_once):
            return True
    if context.state.observed is not before:
        return False
    _report_missing_node(context)
    check_at = context.now + check_interval(_count_poll(context))
    decision_at = next_decision_at()
    wakeup_times = (check_at, None if is_due else due, decision_at)
    await context.wait(
        lambda: context.state.observed is not before or must_act() or next_decision_at() != decision_at,
        until=min(one for one in wakeup_times if one),
        summary="the Node's return",
    )
    return False


def _watch_actions(context: NodeClaimContext) -> Callable[[], bool]:
    """Whether the NodeClaim is being deleted, or an AWS event requires another action than at this call."""
    known = decide_interruption(context.state, context.now).do

    def must_act() -> bool:
        action = decide_interruption(context.state, context.now).do
        return context.is_deleting or (action in ACTING and action != known)

    return must_act


def watch_observed(context: NodeClaimContext) -> Callable[[], bool]:
    """Whether there is a new observation, or an AWS event that requires an action."""
    observed = context.state.observed
    return lambda: context.state.observed is not observed or requires_action(context.state, context.now)


async def handle_not_ready_node(context: NodeClaimContext) -> bool:
    """Delete the NodeClaim if the instance of a NotReady Node is gone (reference 3.8). True if deleted."""
    message = "the instance is gone and its Node is not Ready"
    if await _fail_if_instance_terminated(context, message, _watch_actions(context)):
        return True
    if not context.state.is_newly_unready:
        _count_poll(context)
    context.update_state(unready_since=context.now, is_newly_unready=False)
    return False


def _count_poll(context: NodeClaimContext) -> int:
    """Count consecutive checks that found the instance running."""
    context.update_state(instance_checks=context.state.instance_checks + 1)
    return context.state.instance_checks


async def _fail_if_instance_terminated(context: NodeClaimContext, message: str, must_act: Callable[[], bool]) -> bool:
    """`must_act`: ends the check, which may take as long as EC2 does not respond."""
    status: InstanceStatus | None = await execute_unless(
        InstanceActivities.read_instance_status,
        context.nodeclaim_ref,
        with_summary(PATCH, "check whether the instance runs"),
        must_act,
    )
    if status is None:
        return False
    context.update_state(instance_status=status)
    if not status.state:
        await fail_nodeclaim(context, reason="GarbageCollected", message=message)
    return not status.state


def _report_missing_node(context: NodeClaimContext) -> None:
    why = blocker_of(context.state.instance_status)
    if context.state.blocked_by != why:
        context.set_blocked_by(why)
        context.publish_event(labels.NODE_NOT_FOUND, describe_missing_node(context.state))


async def signal_replacement_status(context: NodeClaimContext) -> None:
    """Signal the command workflow once that its replacement is ready or has failed."""
    message = replacement_status(context.state)
    if message is None:
        return
    await try_signal(context.state.identity.replaces, "replacement_status", message)
    context.update_state(reported_ready=message.ready)
