"""One step of a repair as an activity, after live reads."""

from datetime import timedelta
from typing import Literal

from activities.nodeclaim.repair import RepairActivities
from tenure.model.node_health import Reboot, RepairRequest, RepairResult
from tenure.policy.lifecycle import repair as policy
from tenure.policy.lifecycle.repair import Repair
from tenure.policy.lifecycle.repair_policies import repair_conditions, unhealthy_pairs
from workflows.activity_options import PATCH, execute_unless, with_summary
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.interruption import must_drain


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
