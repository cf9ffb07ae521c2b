"""Launch: from a NodeClaim to an instance. This is the first phase, before registration.

A NodeClaim of a plan waits for the result of its launch group. If there is none, because the response to its creation
was lost, it joins another launch group. A NodeClaim that a user created joins a launch group, or launches individually
as a group of one. The request is always recorded in a history before EC2 is called.
"""

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodeclaim.launch import LaunchActivities
from tenure.apis import labels
from tenure.model.blockers import LAUNCH_FAILED
from tenure.model.discovered_capacity import NO_DISCOVERED_CAPACITY
from tenure.model.launch import (
    DELETED,
    REPEATED_FAILURES,
    GroupOutcome,
    LaunchedInstance,
    LaunchGroup,
    LaunchGroupMember,
    LaunchRejection,
    LaunchResult,
    PreparedLaunchRequest,
    latest_unavailable_offerings,
)
from tenure.model.nodeclaim.requests import NodeClaimLaunchRequest, NodeClaimRef
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import LaunchGroupJoinRequest, ObservedUnavailableOfferings
from workflows import ids
from workflows.activity_options import CREATE_FLEET, PREPARE, launch_options, try_signal, with_summary
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.failure import fail_nodeclaim
from workflows.phases.recovery import needs_recovery, recover_state

JOIN_AFTER = timedelta(seconds=60)
"""Time without a result after which a NodeClaim of a plan asks to join a launch group. Provisioning ignores the request
if a group has it."""
RETRY_AFTER = timedelta(seconds=10)
"""Delay between attempts of a NodeClaim that launches individually."""
RETRY_AFTER_OVERDUE = timedelta(minutes=2)
"""The delay after the deadline."""
MAX_ATTEMPTS = 10
"""Consecutive attempts without a pause. Each excludes the offerings that were unavailable before."""


async def run_launch(context: NodeClaimContext) -> Phase:
    if needs_recovery(context) and (recovered_phase := await recover_state(context)):
        return recovered_phase
    if context.state.rejection is None and (context.state.identity.group_id or await _join_launch_group(context)):
        await _wait_for_launch_group(context)
        has_no_result = context.state.rejection is None or _was_deleted_first(context)
        if context.state.launched is None and has_no_result and (recovered_phase := await recover_state(context)):
            return recovered_phase
    return await _launch_individually(context)


async def _join_launch_group(context: NodeClaimContext) -> bool:
    """Ask Provisioning to launch this NodeClaim with equal NodeClaims of its NodePool.

    False if there is no Provisioning workflow, or the NodeClaim launches individually.
    """
    state, identity = context.state, context.state.identity
    if state.joined:
        return True
    if not (identity.pool and identity.launch_hash) or state.group is not None or state.launched is not None:
        return False
    joined = await _send_join_request(context)
    context.update_state(joined=joined)
    return joined


async def _send_join_request(context: NodeClaimContext) -> bool:
    """False if there is no Provisioning workflow."""
    identity = context.state.identity
    request = LaunchGroupJoinRequest(
        name=context.name,
        uid=context.uid,
        pool=identity.pool,
        node_class=identity.node_class,
        launch_hash=identity.launch_hash,
        group_id=identity.group_id,
    )
    return await try_signal(ids.provisioning(identity.cluster), "join_launch_group", request)


async def _wait_for_launch_group(context: NodeClaimContext) -> None:
    """Wait for the result, even while the NodeClaim is being deleted, since the instance may already exist.

    The launch group terminates an instance whose NodeClaim is gone. After a temporary rejection, the NodeClaim launches
    individually, with its own client tokens.
    """

    def has_ended() -> bool:
        state = context.state
        is_over = not state.observed.exists or (state.overdue and context.is_deleting)
        return is_over or state.launched is not None or state.rejection is not None

    if context.state.identity.group_id and context.state.identity.launch_hash:
        await _repeat_join_request(context, has_ended)
    await context.wait_or_alarm(has_ended, summary="launch deadline")
    rejection = context.state.rejection
    if rejection and not rejection.final:
        context.update_state(launch_attempt=context.state.launch_attempt + 1)
        _set_blocked_by(context, rejection)
        await _wait_before_retry(context)


async def _repeat_join_request(context: NodeClaimContext, has_ended: Callable[[], bool]) -> None:
    """Ask to join a launch group at intervals, until the deadline. The plan may have left the NodeClaim out, since it
    got no response to the creation. A request during the plan is ignored."""
    while not await context.wait_until_deadline(
        has_ended, sooner=context.now + JOIN_AFTER, summary="result of the launch group"
    ):
        if context.is_past_deadline():
            return
        if not context.is_deleting:
            await _send_join_request(context)


async def _launch_individually(context: NodeClaimContext) -> Phase:
    while not _has_launch_result(context) and _may_attempt(context):
        if context.is_deleting:
            break
        result = await _attempt_launch(context)
        if result is None:
            return await recover_state(context) or Phase.TERMINATION
        if isinstance(result, LaunchedInstance):
            context.update_state(launched=result, rejection=None, group=None, discovered=NO_DISCOVERED_CAPACITY)
        else:
            context.update_state(rejection=result, group=None, launch_attempt=context.state.launch_attempt + 1)
            if not result.final:
                _set_blocked_by(context, result)
                await _wait_unless_other_offerings(context, result)
    return await _finish_launch(context)


def _may_attempt(context: NodeClaimContext) -> bool:
    """Whether another attempt is allowed: until the deadline, and longer if its LifecyclePolicy only raises an alarm. A
    NodeClaim first seen after the deadline has one attempt, unless a group may be launching it."""
    is_first_attempt = (
        context.state.launch_attempt == 1 and not context.state.identity.group_id and not context.state.joined
    )
    return is_first_attempt or not context.is_past_deadline() or context.stays_overdue_by_policy()


async def _attempt_launch(context: NodeClaimContext) -> LaunchResult | None:
    """One attempt with one client token: store the request, then call. A restarted attempt uses the stored request.

    None if the NodeClaim already has an instance.
    """
    member = LaunchGroupMember(name=context.name, uid=context.uid)
    try:
        if context.state.group is None:
            prepared = await workflow.execute_activity_method(
                LaunchActivities.prepare_launch,
                _build_launch_request(context),
                **with_summary(PREPARE, "prepare launch"),
            )
            match prepared.preparation:
                case None:
                    return None
                case LaunchRejection() as rejection:
                    return rejection
                case PreparedLaunchRequest(request=request):
                    context.update_state(
                        group=LaunchGroup(
                            group_id=context.name,
                            attempt=context.state.launch_attempt,
                            pool=context.state.identity.pool,
                            members=(member,),
                            request=request,
                            discovered=context.state.discovered,
                        )
                    )
        context.set_current_details()
        group = context.state.group
        assert group is not None
        outcome = await context.execute_until_done(
            lambda options: workflow.execute_activity_method(LaunchActivities.launch_one, group, **options),
            {
                **with_summary(CREATE_FLEET, "CreateFleet"),
                **launch_options(context.state.identity.cluster, group.pool, 1),
            },
        )
    except ActivityError as error:
        return LaunchRejection(reason="LaunchFailed", message=str(error.cause or error), final=False)
    return await _apply_outcome(context, outcome)


async def _apply_outcome(context: NodeClaimContext, outcome: GroupOutcome) -> LaunchResult:
    """Exclude unavailable offerings from the next attempt, and report them to Provisioning."""
    unavailable_offerings = outcome.unavailable
    if unavailable_offerings:
        context.update_state(
            unavailable=latest_unavailable_offerings((*context.state.unavailable, *unavailable_offerings), context.now)
        )
        await try_signal(
            ids.provisioning(context.state.identity.cluster),
            "offerings_unavailable",
            ObservedUnavailableOfferings(unavailable=unavailable_offerings),
        )
    result = outcome.results.get(context.uid) or LaunchRejection(
        reason="NodeClaimGone", message=f"{context.name} is gone"
    )
    if (
        isinstance(result, LaunchRejection)
        and result.final
        and unavailable_offerings
        and context.state.launch_attempt < MAX_ATTEMPTS
    ):
        return result.model_copy(update={"final": False})
    return result


def _build_launch_request(context: NodeClaimContext) -> NodeClaimLaunchRequest:
    return NodeClaimLaunchRequest(
        claim=NodeClaimRef(name=context.name, uid=context.uid),
        unavailable=latest_unavailable_offerings(context.state.unavailable, context.now),
        retry=context.state.launch_attempt > 1,
        discovered=context.state.discovered,
    )


def _set_blocked_by(context: NodeClaimContext, rejection: LaunchRejection) -> None:
    """Errors that are not capacity need an operator once they repeat."""
    repeats = context.state.launch_attempt > REPEATED_FAILURES or context.state.blocked_code == LAUNCH_FAILED
    is_error = rejection.reason != labels.INSUFFICIENT_CAPACITY
    context.set_blocked_by(rejection.describe(), LAUNCH_FAILED if repeats and is_error else "")


async def _wait_unless_other_offerings(context: NodeClaimContext, rejection: LaunchRejection) -> None:
    """After insufficient capacity, another offering is tried immediately. Other rejections need a delay."""
    if rejection.reason != labels.INSUFFICIENT_CAPACITY:
        await _wait_before_retry(context)


async def _wait_before_retry(context: NodeClaimContext) -> None:
    deadline = context.state.deadline or context.now
    until = context.now + RETRY_AFTER_OVERDUE if context.is_alarmed() else min(context.now + RETRY_AFTER, deadline)
    deadline_changed = context.watch_deadline()
    await context.wait(
        lambda: context.is_deleting or deadline_changed(), until=until, summary="before the next attempt"
    )


def _has_launch_result(context: NodeClaimContext) -> bool:
    rejection = context.state.rejection
    return context.state.launched is not None or (rejection is not None and rejection.final)


def _was_deleted_first(context: NodeClaimContext) -> bool:
    """The launch group found the NodeClaim deleted, possibly before the watch did."""
    return context.state.rejection is not None and context.state.rejection.reason == DELETED


async def _finish_launch(context: NodeClaimContext) -> Phase:
    state = context.state
    if state.launched:
        return Phase.REGISTRATION
    if context.is_deleting or _was_deleted_first(context):
        context.update_state(disruption="Deleted")
    elif state.rejection and state.rejection.final:
        await fail_nodeclaim(context, reason=state.rejection.reason, message=state.rejection.message)
    else:
        context.mark_overdue()
        await fail_nodeclaim(
            context, reason="LaunchTimeout", message=state.blocked_by or "no instance before the deadline"
        )
    return Phase.TERMINATION
