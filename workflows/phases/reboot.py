"""A reboot for repair: taint and drain the node, reboot the instance, and wait until the node is healthy again.

`Health.reboot` records the reboot before its first step, and each step before the next one. Between two steps the phase
decides again, so that deletions and AWS events come first. After the reboot, the node waits in its phase and then
enters initialization.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Literal

from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.nodeclaim.drain import DrainActivities
from activities.nodeclaim.repair import RebootActivities
from tenure.model.node_health import Reboot, RebootEnd, RepairResult
from tenure.model.nodeclaim.requests import DrainRequest, DrainResult
from tenure.model.nodeclaim.state import Phase
from tenure.policy.drain.decision import drain_state_after
from tenure.policy.interruption.decision import decide_interruption
from tenure.policy.lifecycle import repair as policy
from tenure.policy.lifecycle.ready import drain_rules, requires_reboot_permit
from tenure.policy.lifecycle.repair import Repair, decide_repair
from workflows.activity_options import DRAIN, PATCH, drain_queue_options, execute_unless, poll_timeout, with_summary
from workflows.metrics import RebootOutcome, count_reboot_decision, time_reboot
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.blocked_drain import wait_for_drain_change
from workflows.phases.interruption import must_drain
from workflows.phases.repair_step import build_request, execute_step, postpone_repair

ISSUE_WITHIN: Final = timedelta(minutes=5)
"""How long the request to EC2 is repeated (reference 1.15, section 3.7)."""


async def continue_reboot(context: NodeClaimContext, repair: Repair) -> None:
    """Execute the next step before the instance reboots."""
    reboot = context.state.health.reboot
    if reboot is None:
        await _begin_reboot(context, repair)
    elif not reboot.drained:
        await _drain_node(context, reboot)
    else:
        await _reboot_instance(context, repair, reboot)


async def _begin_reboot(context: NodeClaimContext, repair: Repair) -> None:
    now, permit = context.now, context.state.permit
    is_limited = context.state.phase is Phase.READY and requires_reboot_permit(context.state)
    within = permit.until - now if is_limited and permit and permit.until else None
    reboot = policy.begin_reboot(repair, boot_id=context.state.observed.boot_id, now=now)
    context.update_state(health=policy.with_reboot(context.state.health, reboot))
    result = await execute_step(context, repair, within=within)
    if result.outcome == "done":
        fields = {"begun": True, "boot_id": result.boot_id}
        context.update_state(health=policy.with_reboot(context.state.health, reboot, **fields))
        count_reboot_decision(context.state)
        return
    health = policy.with_reboot(context.state.health, None)
    if result.outcome == "gone":
        context.update_state(health=policy.after_failure(health, repair, boot_id=reboot.boot_id, now=now))
    else:
        context.update_state(health=health)
        postpone_repair(context, result)


async def _drain_node(context: NodeClaimContext, reboot: Reboot) -> None:
    """Evict pods until the bound. The reboot ends those that are left, or fails without a bound."""
    context.continue_as_new_if_suggested()
    previous = context.state.drain.status if context.state.drain else None
    until, observed = policy.drain_ends_at(context.state, reboot), context.state.observed
    request = DrainRequest(
        claim=context.nodeclaim_ref,
        known_blockers=previous.status_line if previous else "",
        known=previous,
        poll_timeout=poll_timeout(context.now, until).total_seconds(),
        began=reboot.requested_at,
        defers_deletion=True,
        stay=True,
        reboots=True,
        rules=drain_rules(context.state),
    )
    has_changed = _watch_decisions(context)
    options = drain_queue_options(DRAIN, context.state, f"drain {context.state.node_name} to reboot its instance")
    result: DrainResult | None = None
    if context.now < until:
        result = await execute_unless(DrainActivities.drain_node, request, options, has_changed)
    if result is not None:
        context.record_evicted_pods(result.evicted_pods)
    is_past_bound = reboot.drain_until is not None and context.now >= reboot.drain_until
    if (result is not None and result.outcome != "waiting") or is_past_bound:
        drained = policy.with_reboot(context.state.health, reboot, drained=True)
        context.update_state(drain=None, health=drained)
    elif result is not None:
        context.update_state(drain=drain_state_after(context.state.drain, result.status, defers_deletion=True))
        context.set_blocked_by(f"is emptied to be rebooted: {result.blockers}", "Unhealthy")
        if result.is_waiting:
            await wait_for_drain_change(context, observed, has_changed, result.next_change_at, until)


def _watch_decisions(context: NodeClaimContext) -> Callable[[], bool]:
    """Whether the phase must decide again since this call."""
    known = decide_interruption(context.state, context.now).do
    return lambda: (
        context.is_deleting
        or decide_repair(context.state, context.now).do != "reboot"
        or decide_interruption(context.state, context.now).do != known
    )


async def _reboot_instance(context: NodeClaimContext, repair: Repair, reboot: Reboot) -> None:
    """The time limit of a reboot starts with the request. A reboot that EC2 rejects counts as a reboot that did not
    help."""
    started_at, state = context.now, context.state
    within = min(ISSUE_WITHIN, policy.reboot_for(state.observed.rules, state.health.mode))
    try:
        result = await execute_step(context, repair, within=within)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        result = RepairResult(outcome="gone", why=str(error.cause or error)[:200])
    if result.outcome == "done":
        issued = policy.after_step(context.state.health, repair, boot_id=reboot.boot_id, now=started_at)
        context.update_state(health=issued)
    elif result.outcome == "gone":
        why = f"{repair.condition}: {result.why or 'there is no instance to reboot'}"
        if not await _end_reboot(context, repair, "failed", why, "provider_error"):
            return
        failed = policy.after_failure(context.state.health, repair, boot_id=reboot.boot_id, now=started_at)
        context.update_state(health=policy.with_reboot(failed, None))
    elif await _end_reboot(context, repair, "cancelled", result.why):
        context.update_state(health=policy.with_reboot(context.state.health, None))
        postpone_repair(context, result)


async def end_reboot_step(context: NodeClaimContext, repair: Repair) -> None:
    """Record that the instance rebooted, that this did not help in time, or that it is not necessary any more. Nothing
    changes if the node must be drained."""
    reboot = context.state.health.reboot
    if repair.do == "observe":
        options = with_summary(PATCH, "remove the taint of the rebooted node")
        if await _execute_unless_drained(
            context, RebootActivities.observe_reboot, build_request(context, repair), options
        ):
            context.update_state(health=policy.with_reboot(context.state.health, reboot, observed=True))
        return
    if repair.do == "cancel" or reboot is None:
        is_ended = await _end_reboot(context, repair, "cancelled", "the reboot is not necessary any more")
    elif reboot.issued:
        why = "the reboot did not help in time" if reboot.observed else "no reboot was observed"
        is_ended = await _end_reboot(context, repair, "failed", f"{repair.condition}: {why}", "recovery_timeout")
    else:
        why = f"{repair.condition}: pods could not be evicted in time"
        is_ended = await _end_reboot(context, repair, "failed", why)
        if is_ended:
            failed = policy.after_failure(context.state.health, repair, boot_id=reboot.boot_id, now=context.now)
            context.update_state(health=failed)
    if is_ended:
        context.update_state(drain=None, health=policy.with_reboot(context.state.health, None))


async def end_recovered_reboot(context: NodeClaimContext, repair: Repair) -> bool:
    """End the reboot of a healthy node, if there is one. False if the node must be drained."""
    reboot = context.state.health.reboot
    if reboot is None:
        return True
    if reboot.observed:
        return await _end_reboot(context, repair, "succeeded", "", "succeeded")
    why = f"{repair.condition}: no reboot was observed, and the node is healthy"
    return await _end_reboot(context, repair, "failed", why, "recovery_timeout")


async def _end_reboot(
    context: NodeClaimContext,
    repair: Repair,
    outcome: Literal["succeeded", "failed", "cancelled"],
    why: str,
    counted: RebootOutcome | None = None,
) -> bool:
    """False if the node must be drained. `counted`: the result in the metrics; None if the instance was not to be
    rebooted."""
    end = RebootEnd(repair=build_request(context, repair), outcome=outcome, why=why)
    options = with_summary(PATCH, f"end the reboot: {outcome}")
    if not await _execute_unless_drained(context, RebootActivities.end_reboot, end, options):
        return False
    reboot = context.state.health.reboot
    if reboot is not None and counted is not None:
        time_reboot(reboot, context.state.health.step_at, counted)
    return True


async def _execute_unless_drained(
    context: NodeClaimContext, activity: Callable[..., Any], request: Any, options: Any
) -> bool:
    """Whether the activity ended. It is cancelled when the node must be drained."""
    return bool(await execute_unless(activity, request, options, lambda: must_drain(context)))
