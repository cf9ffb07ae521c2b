"""Repair of an unhealthy node in Ready or Initialization; `tenure/policy/lifecycle/repair.py` decides.

A reboot taints and drains the node, reboots the instance, and waits until the node is healthy again. `Health.reboot`
records it before its first step, and each step before the next one. Between two steps the phase decides again, so that
deletions and AWS events come first. After the reboot, the node waits in its phase and then enters initialization.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Literal, assert_never

from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.nodeclaim.drain import DrainActivities
from activities.nodeclaim.repair import RebootActivities, RepairActivities
from tenure.apis import labels
from tenure.model.node_health import Reboot, RebootEnd, RepairRequest, RepairResult
from tenure.model.nodeclaim.requests import DrainRequest, DrainResult
from tenure.model.nodeclaim.state import Phase
from tenure.policy.drain.decision import drain_state_after
from tenure.policy.interruption.decision import decide_interruption
from tenure.policy.lifecycle import repair as policy
from tenure.policy.lifecycle.ready import drain_rules, next_involuntary_at, requires_reboot_permit
from tenure.policy.lifecycle.repair import Repair, decide_repair
from tenure.policy.lifecycle.repair_policies import repair_conditions, unhealthy_pairs
from workflows.activity_options import DRAIN, PATCH, drain_queue_options, execute_unless, poll_timeout, with_summary
from workflows.metrics import RebootOutcome, count_reboot_decision, time_reboot
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.blocked_drain import wait_for_drain_change
from workflows.phases.interruption import must_drain


async def repair_node(context: NodeClaimContext) -> bool:
    """True if the NodeClaim is being deleted. Otherwise the state's `Health` changes, so the next decision differs.

    Unless the mode is `legacy`, a disruption command replaces the node, and this module only requests it.
    """
    repair, health = decide_repair(context.state, context.now), context.state.health
    match repair.do:
        case "wait":
            return False
        case "recovered":
            if not await end_recovered_reboot(context, repair):
                return False
            context.update_state(health=policy.after_recovery(context.state.health, context.now))
            message = f"the node is healthy again after {repair.condition}"
            context.publish_event("Repaired", message)
            return False
        case "reboot":
            await continue_reboot(context, repair)
            return False
        case "observe" | "cancel" | "fail":
            await end_reboot_step(context, repair)
            return False
        case "report":
            context.publish_event("DisruptionBlocked", repair.blocked_by, on_node=True)
            context.update_state(health=policy.block_repair(health, repair.blocked_by))
            return False
        case "replace":
            return await _replace_node(context, repair)
        case "withdraw":
            await execute_step(context, repair)
            context.update_state(health=policy.with_request(context.state.health, None))
            return False
        case _:
            assert_never(repair.do)


async def _replace_node(context: NodeClaimContext, repair: Repair) -> bool:
    result = await execute_step(context, repair)
    health = policy.with_condition(context.state.health, repair)
    if result.outcome in ("done", "gone"):
        context.update_state(disruption=labels.UNHEALTHY, health=health)
        return True
    if result.outcome == "requested":
        context.update_state(health=policy.with_request(health, repair.due))
        return False
    postpone_repair(context, result)
    return False


async def execute_step(context: NodeClaimContext, repair: Repair, *, within: timedelta | None = None) -> RepairResult:
    """`within`: the time limit of all attempts. Ends without a step if the node must be drained. Raises
    ActivityError."""
    request = build_request(context, repair)
    options = with_summary(PATCH, f"{request.step} for {repair.condition}")
    if within is not None:
        options = {**options, "schedule_to_close_timeout": within}
    result: RepairResult | None = await execute_unless(
        RepairActivities.repair_node, request, options, lambda: must_drain(context)
    )
    return result or RepairResult(outcome="not now", why="the node is drained")


def build_request(context: NodeClaimContext, repair: Repair) -> RepairRequest:
    state, claim = context.state, context.nodeclaim_ref
    return RepairRequest(
        name=claim.name,
        uid=claim.uid,
        pool=state.identity.pool,
        node_name=claim.node_name,
        provider_id=claim.provider_id,
        step=_step_of(repair, state.health.reboot),
        step_index=repair.rung,
        condition=repair.condition,
        conditions=unhealthy_pairs(repair_conditions(state.observed.rules, state.health.mode)),
        max_unhealthy=policy.repair_rules_of(state.observed.rules).max_unhealthy or policy.MAX_UNHEALTHY,
        after_reboot=state.health.step_at is not None,
        graceful_for=policy.drain_grace(state.observed.rules),
        mode=state.health.mode,
        due=repair.due,
        reboot=state.health.reboot,
    )


def _step_of(repair: Repair, reboot: Reboot | None) -> Literal["begin", "reboot", "replace", "withdraw"]:
    if repair.do == "replace" or repair.do == "withdraw":
        return repair.do
    return "reboot" if reboot is None or reboot.begun else "begin"


def postpone_repair(context: NodeClaimContext, result: RepairResult) -> None:
    pause = policy.BREAKER_CHECK_INTERVAL if result.outcome == "held" else policy.RECHECK_AFTER
    context.update_state(health=policy.block_repair(context.state.health, result.why, context.now + pause))


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
    decision_at = next_involuntary_at(context.state, context.now)
    request = DrainRequest(
        claim=context.nodeclaim_ref,
        known_blockers=previous.status_line if previous else "",
        known=previous,
        poll_timeout=poll_timeout(context.now, until, decision_at).total_seconds(),
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
            await wait_for_drain_change(context, observed, has_changed, result.next_change_at, until, decision_at)


def _watch_decisions(context: NodeClaimContext) -> Callable[[], bool]:
    """Whether the phase must decide again since this call."""
    known = decide_interruption(context.state, context.now).do, next_involuntary_at(context.state, context.now)
    return lambda: (
        context.is_deleting
        or decide_repair(context.state, context.now).do != "reboot"
        or (decide_interruption(context.state, context.now).do, next_involuntary_at(context.state, context.now))
        != known
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
