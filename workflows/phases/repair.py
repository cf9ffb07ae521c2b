"""Repair: performs what `tenure/policy/lifecycle/repair.py` asks for a node that is unhealthy. Beside ready and
initialization.

A reboot is waited for in the phase that the node is in: it goes through initialization when its machine is back.
"""

from typing import assert_never

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from activities.nodeclaim.repair import RepairActivities
from tenure.apis import labels
from tenure.model.node_health import RepairAsked, Repaired
from tenure.model.nodeclaim_requests import Report
from tenure.policy.lifecycle import repair as policy
from tenure.policy.lifecycle.repair import Repair, decide_repair
from workflows.activity_options import PATCH, named
from workflows.nodeclaim_context import Life
from workflows.phases.failure import ref


async def repair(life: Life) -> bool:
    """True once the NodeClaim is being deleted. Every other end changes the node's `Health`, so that the next verdict
    differs."""
    verdict, health = decide_repair(life.state, life.now), life.state.health
    match verdict.do:
        case "wait":
            return False
        case "recovered":
            life.change(health=policy.after_recovery(health, life.now))
            await _say_recovered(life, verdict)
            return False
        case "reboot":
            await _reboot(life, verdict)
            return False
        case "replace":
            return await _replace(life, verdict)
        case _:
            assert_never(verdict.do)


async def _reboot(life: Life, verdict: Repair) -> None:
    """The time for it runs from the request. One that may not be asked for counts as one that did not help."""
    boot_id, began = life.state.seen.boot_id, life.now
    try:
        answer = await _step(life, verdict)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        answer = Repaired(outcome="gone", why=str(error.cause or error)[:200])
    if answer.outcome == "done":
        life.change(health=policy.after_step(life.state.health, verdict, boot_id=boot_id, now=began))
    elif answer.outcome == "gone":
        life.change(health=policy.after_failure(life.state.health, verdict, boot_id=boot_id, now=began))
        await _say(life, "RebootFailed", f"{verdict.condition}: {answer.why or 'there is no instance to reboot'}")
    else:
        _hold(life, answer)


async def _replace(life: Life, verdict: Repair) -> bool:
    answer = await _step(life, verdict)
    if answer.outcome in ("done", "gone"):
        life.change(disruption=labels.UNHEALTHY)
        return True
    _hold(life, answer)
    return False


def _hold(life: Life, answer: Repaired) -> None:
    pause = policy.HELD_FOR if answer.outcome == "held" else policy.AGAIN_IN
    life.change(health=policy.held(life.state.health, answer.why, life.now + pause))


async def _step(life: Life, verdict: Repair) -> Repaired:
    state, claim = life.state, ref(life)
    asked = RepairAsked(
        name=claim.name,
        uid=claim.uid,
        pool=state.identity.pool,
        node_name=claim.node_name,
        provider_id=claim.provider_id,
        step="reboot" if verdict.do == "reboot" else "replace",
        rung=verdict.rung,
        condition=verdict.condition,
        conditions=tuple((one.type, one.status) for one in policy.counted(state.seen.rules)),
        max_unhealthy=policy.rules_of(state.seen.rules).max_unhealthy or policy.MAX_UNHEALTHY,
        after_reboot=state.health.step_at is not None,
        graceful_for=policy.graceful_for(state.seen.rules),
    )
    options = named(PATCH, f"{asked.step} for {verdict.condition}")
    if asked.step == "reboot":
        options = {**options, "schedule_to_close_timeout": policy.reboot_for(state.seen.rules)}
    return await workflow.execute_activity_method(RepairActivities.repair_node, asked, **options)


async def _say_recovered(life: Life, verdict: Repair) -> None:
    await _say(life, "Repaired", f"the node is well again after {verdict.condition}", warning=False)


async def _say(life: Life, event: str, message: str, *, warning: bool = True) -> None:
    report = Report(claim=ref(life), event=event, message=message, warning=warning)
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, f"say {event}"))
