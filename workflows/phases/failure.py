"""What phases share when a claim cannot be helped: delete the NodeClaim, saying why; its pods are planned anew.

A replacement tells the workflow of its disruption when it is ready, or as soon as it is clear that it never will be.

Whoever made the NodeClaim wrote that workflow on it; a node that replaces none has no event of this.
"""

from collections.abc import Callable
from contextlib import suppress

from temporalio import workflow
from temporalio.exceptions import FailureError

from activities.disruption import DisruptionActivities
from activities.nodeclaim.instance import TerminationActivities
from tenure.apis import labels
from tenure.model.nodeclaim.requests import NodeClaimDisruptionRequest
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import StartupOutcome
from tenure.policy.disruption.commands import replacement_status
from tenure.policy.interruption.decision import requires_action
from tenure.policy.lifecycle.ready import check_interval
from tenure.policy.nodepool import counts_as_failure
from workflows.activity_options import PATCH, with_summary
from workflows.nodeclaim_context import NodeClaimContext


async def fail_nodeclaim(context: NodeClaimContext, *, reason: str, message: str, at_once: bool = False) -> None:
    """An event with the reason, then deletion. Conditions keep what was last known."""
    context.update_state(disruption=reason)
    context.publish_event(reason, message)
    await _report_startup_failure(context, reason=reason, message=message)
    await delete_nodeclaim(context, reason=reason, at_once=at_once)


async def _report_startup_failure(context: NodeClaimContext, *, reason: str, message: str) -> None:
    """A start that failed counts for its NodePool's condition NodeRegistrationHealthy. Best effort: a pool without a
    workflow has nobody to tell."""
    state = context.state
    rejection_reason = state.rejection.reason if state.rejection else ""
    if not state.identity.pool or not counts_as_failure(state.phase, reason, rejection_reason):
        return
    why = (rejection_reason or labels.LAUNCH_FAILED) if state.phase is Phase.LAUNCH else labels.REGISTRATION_FAILED
    failed = StartupOutcome(uid=context.uid, at=context.now, reason=why, message=f"{context.name}: {message}"[:300])
    with suppress(FailureError):
        await workflow.get_external_workflow_handle(context.nodepool_workflow_id()).signal("startup_failed", failed)


async def delete_nodeclaim(context: NodeClaimContext, *, reason: str, at_once: bool = False) -> None:
    """Delete the NodeClaim forcefully: by a deadline or expiry, which no budget holds up. `at_once`: no pod either."""
    request = NodeClaimDisruptionRequest(claim=context.nodeclaim_ref, reason=reason, voluntary=False, at_once=at_once)
    await workflow.execute_activity_method(
        DisruptionActivities.delete_nodeclaim, request, **with_summary(PATCH, f"delete the NodeClaim: {reason}")
    )


async def handle_missing_node(context: NodeClaimContext) -> bool:
    """The Node is gone from the cluster: give the claim up if its instance is gone too, else wait for either."""
    before = context.state.observed
    if await _fail_if_instance_terminated(context, "the Node and its instance are gone"):
        return True
    _report_missing_node(context)
    if context.state.observed is not before:
        return False
    pause = check_interval(_count_poll(context))
    await context.wait(watch_observed(context), until=context.now + pause, summary="the Node's return")
    return False


def watch_observed(context: NodeClaimContext) -> Callable[[], bool]:
    """Whether the watch has seen it anew, or AWS says by now what makes it go at once."""
    observed = context.state.observed
    return lambda: context.state.observed is not observed or requires_action(context.state, context.now)


async def handle_not_ready_node(context: NodeClaimContext) -> bool:
    """The Node has not been Ready for a while: give the claim up if its instance is gone (reference 3.8)."""
    if await _fail_if_instance_terminated(context, "the instance is gone and its Node is not Ready"):
        return True
    _count_poll(context)
    context.update_state(unready_since=context.now)
    return False


def _count_poll(context: NodeClaimContext) -> int:
    """The instance runs; how often that was found in a row."""
    context.update_state(instance_checks=context.state.instance_checks + 1)
    return context.state.instance_checks


async def _fail_if_instance_terminated(context: NodeClaimContext, message: str) -> bool:
    is_running = await workflow.execute_activity_method(
        TerminationActivities.instance_is_running,
        context.nodeclaim_ref,
        **with_summary(PATCH, "does the instance still run?"),
    )
    if not is_running:
        await fail_nodeclaim(context, reason="GarbageCollected", message=message)
    return not is_running


def _report_missing_node(context: NodeClaimContext) -> None:
    """Once, however often it is looked for."""
    why = f"{labels.NODE_NOT_FOUND}: the Node left the cluster while its instance runs on"
    if context.state.blocked_by == why:
        return
    context.set_blocked_by(why)
    context.publish_event(labels.NODE_NOT_FOUND, why.partition(": ")[2])


async def signal_replacement_status(context: NodeClaimContext) -> None:
    """Once. A disruption that is over needs no telling."""
    message = replacement_status(context.state)
    if message is None:
        return
    with suppress(FailureError):
        await workflow.get_external_workflow_handle(context.state.identity.replaces).signal(
            "replacement_status", message
        )
    context.update_state(reported_ready=message.ready)
