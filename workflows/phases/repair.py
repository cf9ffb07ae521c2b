"""Repair of an unhealthy node in Ready or Initialization; `tenure/policy/lifecycle/repair.py` decides.

After a reboot, the node waits in its phase until the instance runs again, and then enters initialization.
"""

from typing import assert_never

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.nodeclaim.repair import RepairActivities
from tenure.apis import labels
from tenure.model.node_health import RepairRequest, RepairResult
from tenure.policy.lifecycle import repair as policy
from tenure.policy.lifecycle.repair import Repair, decide_repair
from tenure.policy.lifecycle.repair_policies import repair_conditions, unhealthy_pairs
from workflows.activity_options import PATCH, with_summary
from workflows.nodeclaim_context import NodeClaimContext


async def repair_node(context: NodeClaimContext) -> bool:
    """True if the NodeClaim is being deleted. Otherwise the state's `Health` changes, so the next decision differs.

    Unless the mode is `legacy`, a disruption command replaces the node, and this module only requests it.
    """
    repair, health = decide_repair(context.state, context.now), context.state.health
    match repair.do:
        case "wait":
            return False
        case "recovered":
            context.update_state(health=policy.after_recovery(health, context.now))
            message = f"the node is healthy again after {repair.condition}"
            context.publish_event("Repaired", message)
            return False
        case "reboot":
            await _reboot_node(context, repair)
            return False
        case "report":
            context.publish_event("DisruptionBlocked", repair.blocked_by, on_node=True)
            context.update_state(health=policy.block_repair(health, repair.blocked_by))
            return False
        case "replace":
            return await _replace_node(context, repair)
        case "withdraw":
            await _execute_step(context, repair)
            context.update_state(health=policy.with_request(context.state.health, None))
            return False
        case _:
            assert_never(repair.do)


async def _reboot_node(context: NodeClaimContext, repair: Repair) -> None:
    """The time limit of a reboot starts with the request. A reboot that EC2 rejects counts as a reboot that did not
    help."""
    boot_id, started_at = context.state.observed.boot_id, context.now
    try:
        result = await _execute_step(context, repair)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        result = RepairResult(outcome="gone", why=str(error.cause or error)[:200])
    if result.outcome == "done":
        context.update_state(health=policy.after_step(context.state.health, repair, boot_id=boot_id, now=started_at))
    elif result.outcome == "gone":
        context.update_state(health=policy.after_failure(context.state.health, repair, boot_id=boot_id, now=started_at))
        context.publish_event("RebootFailed", f"{repair.condition}: {result.why or 'there is no instance to reboot'}")
    else:
        _postpone_repair(context, result)


async def _replace_node(context: NodeClaimContext, repair: Repair) -> bool:
    result = await _execute_step(context, repair)
    if result.outcome in ("done", "gone"):
        context.update_state(disruption=labels.UNHEALTHY)
        return True
    if result.outcome == "requested":
        context.update_state(health=policy.with_request(context.state.health, repair.due))
        return False
    _postpone_repair(context, result)
    return False


def _postpone_repair(context: NodeClaimContext, result: RepairResult) -> None:
    pause = policy.BREAKER_CHECK_INTERVAL if result.outcome == "held" else policy.RECHECK_AFTER
    context.update_state(health=policy.block_repair(context.state.health, result.why, context.now + pause))


async def _execute_step(context: NodeClaimContext, repair: Repair) -> RepairResult:
    state, claim = context.state, context.nodeclaim_ref
    request = RepairRequest(
        name=claim.name,
        uid=claim.uid,
        pool=state.identity.pool,
        node_name=claim.node_name,
        provider_id=claim.provider_id,
        step=repair.do if repair.do in ("reboot", "withdraw") else "replace",
        step_index=repair.rung,
        condition=repair.condition,
        conditions=unhealthy_pairs(repair_conditions(state.observed.rules, state.health.mode)),
        max_unhealthy=policy.repair_rules_of(state.observed.rules).max_unhealthy or policy.MAX_UNHEALTHY,
        after_reboot=state.health.step_at is not None,
        graceful_for=policy.drain_grace(state.observed.rules),
        mode=state.health.mode,
        due=repair.due,
    )
    options = with_summary(PATCH, f"{request.step} for {repair.condition}")
    if request.step == "reboot":
        options = {**options, "schedule_to_close_timeout": policy.reboot_for(state.observed.rules, state.health.mode)}
    return await workflow.execute_activity_method(RepairActivities.repair_node, request, **options)
