"""Repair of an unhealthy node in Ready or Initialization; `tenure/policy/lifecycle/repair.py` decides.

`reboot.py` has the steps of a reboot.
"""

from typing import assert_never

from tenure.apis import labels
from tenure.policy.lifecycle import repair as policy
from tenure.policy.lifecycle.repair import Repair, decide_repair
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.reboot import continue_reboot, end_reboot_step, end_recovered_reboot
from workflows.phases.repair_step import execute_step, postpone_repair


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
