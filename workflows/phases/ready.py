"""Ready: the node runs pods. The longest phase, and the only one from which a node goes of Tenure's own accord.

`tenure/policy/lifecycle/ready.py` decides; here the decision is performed, and between decisions nothing happens at
all.
"""

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from activities.disruption import DisruptionActivities
from tenure.apis import labels
from tenure.model.disruption.drain import DrainState
from tenure.model.nodeclaim_requests import Disrupted, DisruptionAsked, Report
from tenure.model.nodeclaim_state import Phase
from tenure.model.signals import DisruptionReason, PermitAnswered, PermitAsked, PermitWithdrawn
from tenure.policy.drain.decision import keeps
from tenure.policy.hooks.rules import keeps as hooks_keep
from tenure.policy.interruption.decision import decide_interruption
from tenure.policy.lifecycle.ready import (
    EMPTY,
    EXPIRED,
    INTERRUPTED,
    PERMIT,
    Verdict,
    decide_ready,
    drain_rules,
    expiry_of,
)
from workflows.activity_options import PATCH, answered, named
from workflows.disruption.metrics import count_empty
from workflows.nodeclaim_context import Life
from workflows.phases.failure import dead, disrupt, lost, news, ref
from workflows.phases.interruption import holding, leave
from workflows.phases.pause import again_if_marked, is_held, put_back
from workflows.phases.repair import repair
from workflows.phases.stop_start import stop_and_start

_REASONS: Final[dict[str, DisruptionReason]] = {EXPIRED: EXPIRED, INTERRUPTED: INTERRUPTED}
"""Those for which the node goes whatever runs there."""
_STAYS: Final = ("wait", "ask", "withdraw")
NOT_NOW = timedelta(seconds=10)
NOT_NOW_LONGEST = timedelta(minutes=10)
"""A live read contradicted the watch: decide again when there is news, or after so long at first and at last."""


async def ready(life: Life) -> Phase:
    refuted = 0
    while True:
        verdict = decide_ready(life.state, life.now)
        if verdict.do in _STAYS and await put_back(life):
            continue
        match verdict.do:
            case "drain":
                life.change(disruption=life.state.disruption or verdict.why, drain=None)
                return Phase.DRAIN
            case "interrupt":
                following = await _interrupt(life)
                if following is not None:
                    return following
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
                life.change(interrupted="")
                await put_back(life)
                refuted = 0 if await _reconsider(life, refuted) else refuted + 1
            case "look":
                if await (lost(life) if not life.state.seen.node_name else dead(life)):
                    return Phase.DRAIN
            case "repair":
                if await repair(life):
                    return Phase.DRAIN
            case "wait":
                await _wait(life, verdict)


async def _interrupt(life: Life) -> Phase | None:
    """None where all is to be decided anew."""
    event = decide_interruption(life.state, life.now)
    return await stop_and_start(life, event.key) if event.do == "stop" else await leave(life)


async def _wait(life: Life, verdict: Verdict) -> None:
    """News that changes nothing leaves the timer as it is. A refusal is said on the NodeClaim, once for each."""
    refused = bool(verdict.blocked_by) and life.state.permit is not None
    if refused and verdict.blocked_by != life.state.blocked_by:
        await _say_blocked(life, verdict.blocked_by)
    life.change(waits_until=decide_interruption(life.state, life.now).until)
    life.block(verdict.blocked_by or _still_blocked(life, verdict))
    await life.wait(
        lambda: decide_ready(life.state, life.now) != verdict,
        until=again_if_marked(life, verdict.until),
        summary=verdict.why or ("a look at its instance" if life.state.unready_since else "expiry"),
    )


def _still_blocked(life: Life, verdict: Verdict) -> str:
    """Who was refused and asks again waits for what it waited for until it is answered, and that was said."""
    state = life.state
    asks_again = verdict.why == PERMIT and state.permit is None and state.asks > 0
    return state.blocked_by if asks_again and state.blocked_by else ""


async def _say_blocked(life: Life, why: str) -> None:
    """It could go and may not: Karpenter's words for both (reference 3.9, 5.2)."""
    consolidatable = labels.CONSOLIDATABLE if life.state.permit_for == EMPTY else ""
    report = Report(claim=ref(life), condition=consolidatable, status="True", event="DisruptionBlocked", message=why)
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, "say what blocks it"))


async def _ask(life: Life, verdict: Verdict) -> None:
    reason = _REASONS.get(verdict.why, EMPTY)
    since = life.state.seen.empty_since if reason == EMPTY else expiry_of(life.state) if reason == EXPIRED else None
    asked = PermitAsked(
        claim_name=life.name,
        claim_uid=life.uid,
        workflow_id=workflow.info().workflow_id,
        reason=reason,
        since=since or life.now,
    )
    life.change(permit=None, permit_asked=life.now, permit_for=reason, recalled="", asks=_asks(life, reason))
    if not await _tell_pool(life, "asked", asked):
        refused = PermitAnswered(granted=False, reason=reason, blocked_by="the NodePool has no workflow yet")
        life.change(permit=refused)


def _asks(life: Life, reason: DisruptionReason) -> int:
    state = life.state
    if state.permit_asked is None or state.permit_for != reason:
        return 0
    refused = state.permit is not None and not state.permit.granted
    return state.asks + 1 if refused else state.asks


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
    event = decide_interruption(life.state, life.now) if verdict.why == INTERRUPTED else None
    reason, drained = event.reason if event else verdict.why, event.key if event else ""
    life.change(interrupted=drained, marked=True)
    keep = keeps(drain_rules(life.state)) or hooks_keep(life.state.seen.rules) or bool(holding(life).held)
    asked = DisruptionAsked(claim=ref(life), reason=reason, voluntary=verdict.why not in _REASONS, keep=keep)
    try:
        answer: Disrupted | None = await answered(
            DisruptionActivities.disrupt_claim, asked, options, lambda: is_held(life)
        )
    except ActivityError as error:
        if error.retry_state is not RetryState.TIMEOUT:
            raise
        await withdraw(life)
        life.block(str(error.cause or error)[:200])
        return False
    if answer is None:
        return False
    if answer.outcome != "not now":
        life.change(disruption=reason, drain=DrainState(keep=True) if keep else None, marked=False)
        if verdict.why == EMPTY:
            count_empty(life.state.identity.pool)
        return True
    life.change(marked=False)
    await withdraw(life)
    life.block(answer.why)
    return False


async def _reconsider(life: Life, refuted: int) -> bool:
    """True when there is news. Without any the watch may be wrong for good, so the pauses grow."""
    pause = min(NOT_NOW_LONGEST, NOT_NOW * 2 ** min(refuted, 6))
    return await life.wait(news(life), until=life.now + pause, summary="the node is in use")


async def _tell_pool(life: Life, signal: str, message: PermitAsked | PermitWithdrawn) -> bool:
    pool = workflow.get_external_workflow_handle(life.pool_workflow())
    try:
        await pool.signal(signal, message)
    except ApplicationError:
        return False
    return True
