"""Ready: the node runs pods. The longest phase, and the only one from which a node goes of Tenure's own accord.

`policy/ready.py` decides; here the decision is performed, and between decisions nothing happens at all.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

from activities.disruption import DisruptionActivities
from model import labels
from model.drains import DrainState
from model.lifecycle import Phase
from model.messages import DisruptionReason, PermitAnswered, PermitAsked, PermitWithdrawn
from model.steps import Disrupted, DisruptionAsked, Report
from policy.drain import keeps
from policy.expiry import expiry_of
from policy.ready import EMPTY, EXPIRED, Verdict, decide_ready, drain_rules
from workflows.life import Life
from workflows.options import PATCH, named
from workflows.phases.braked import is_held
from workflows.phases.giving_up import dead, disrupt, lost, ref
from workflows.phases.repair import repair

NOT_NOW = timedelta(seconds=10)
NOT_NOW_LONGEST = timedelta(minutes=10)
"""A live read contradicted the watch: decide again when there is news, or after so long at first and at last."""


async def ready(life: Life) -> Phase:
    refuted = 0
    while True:
        verdict = decide_ready(life.state, life.now)
        match verdict.do:
            case "drain":
                life.change(disruption=life.state.disruption or verdict.why, drain=None)
                return Phase.DRAIN
            case "initialize":
                life.change(reboots=life.state.reboots + 1)
                return Phase.INITIALIZATION
            case "expire":
                life.change(disruption=EXPIRED)
                await disrupt(life, reason=EXPIRED)
                return Phase.DRAIN
            case "ask":
                await _ask(life, verdict)
            case "withdraw":
                await withdraw(life)
            case "disrupt":
                if await _disrupt(life, verdict):
                    return Phase.DRAIN
                refuted = 0 if await _reconsider(life, refuted) else refuted + 1
            case "look":
                if await (lost(life) if not life.state.seen.node_name else dead(life)):
                    return Phase.DRAIN
            case "repair":
                if await repair(life):
                    return Phase.DRAIN
            case "wait":
                await _wait(life, verdict)


async def _wait(life: Life, verdict: Verdict) -> None:
    """News that changes nothing leaves the timer as it is. A refusal is said on the NodeClaim, once for each."""
    refused = bool(verdict.blocked_by) and life.state.permit is not None
    if refused and verdict.blocked_by != life.state.blocked_by:
        await _say_blocked(life, verdict.blocked_by)
    life.block(verdict.blocked_by)
    await life.wait(
        lambda: decide_ready(life.state, life.now) != verdict, until=verdict.until, summary=verdict.why or "expiry"
    )


async def _say_blocked(life: Life, why: str) -> None:
    """It could go and may not: Karpenter's words for both (reference 3.9, 5.2)."""
    consolidatable = labels.CONSOLIDATABLE if life.state.permit_for == EMPTY else ""
    report = Report(claim=ref(life), condition=consolidatable, status="True", event="DisruptionBlocked", message=why)
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, "say what blocks it"))


async def _ask(life: Life, verdict: Verdict) -> None:
    reason: DisruptionReason = EXPIRED if verdict.why == EXPIRED else EMPTY
    since = expiry_of(life.state) if reason == EXPIRED else life.state.seen.empty_since
    asked = PermitAsked(
        claim_name=life.name,
        claim_uid=life.uid,
        workflow_id=workflow.info().workflow_id,
        reason=reason,
        since=since or life.now,
    )
    life.change(permit=None, permit_asked=life.now, permit_for=reason, recalled="")
    if not await _tell_pool(life, "asked", asked):
        refused = PermitAnswered(granted=False, reason=reason, blocked_by="the NodePool has no workflow yet")
        life.change(permit=refused)


async def withdraw(life: Life) -> None:
    """Hand the permit back, or take the wish for one."""
    life.change(permit=None, permit_asked=None, blocked_by="")
    withdrawn = PermitWithdrawn(claim_uid=life.uid, workflow_id=workflow.info().workflow_id)
    await _tell_pool(life, "withdrawn", withdrawn)


async def _disrupt(life: Life, verdict: Verdict) -> bool:
    """Delete the NodeClaim while the permit lasts and if the live state still agrees; else give the permit back."""
    options = named(PATCH, f"delete the NodeClaim: {verdict.why}")
    permit = life.state.permit
    if permit and permit.until:
        options = {**options, "schedule_to_close_timeout": permit.until - life.now}
    options = {**options, "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED}
    keep = keeps(drain_rules(life.state))
    asked = DisruptionAsked(claim=ref(life), reason=verdict.why, voluntary=verdict.why != EXPIRED, keep=keep)
    answering = workflow.start_activity_method(DisruptionActivities.disrupt_claim, asked, **options)
    await workflow.wait_condition(lambda: answering.done() or is_held(life))
    if not answering.done():
        # What is being tried goes to its end; it is not tried again.
        answering.cancel()
    try:
        answer: Disrupted = await answering
    except ActivityError as error:
        if is_cancelled_exception(error) and is_held(life):
            return False
        if error.retry_state is not RetryState.TIMEOUT:
            raise
        await withdraw(life)
        life.block(str(error.cause or error)[:200])
        return False
    if answer.outcome != "not now":
        life.change(disruption=verdict.why, drain=DrainState(keep=True) if keep else None)
        return True
    await withdraw(life)
    life.block(answer.why)
    return False


async def _reconsider(life: Life, refuted: int) -> bool:
    """True when there is news. Without any the watch may be wrong for good, so the pauses grow."""
    known = life.state.seen
    pause = min(NOT_NOW_LONGEST, NOT_NOW * 2 ** min(refuted, 6))
    return await life.wait(lambda: life.state.seen is not known, until=life.now + pause, summary="the node is in use")


async def _tell_pool(life: Life, signal: str, message: PermitAsked | PermitWithdrawn) -> bool:
    pool = workflow.get_external_workflow_handle(life.pool_workflow())
    try:
        await pool.signal(signal, message)
    except ApplicationError:
        return False
    return True
