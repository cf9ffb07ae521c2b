"""Initialization: the Node becomes Ready, startup and ephemeral taints leave, requested resources appear.

After registration; also where a machine that rebooted comes back to. Passing the deadline makes the node overdue,
visibly; it is kept, since its pods may be about to start, unless a LifecyclePolicy wants it replaced.
"""

from datetime import datetime, timedelta

from temporalio import workflow

from activities.disruption import DisruptionActivities
from activities.nodeclaim.registration import JoiningActivities
from tenure.apis import labels
from tenure.model.nodeclaim_requests import Report
from tenure.model.nodeclaim_state import Phase
from tenure.policy.interruption.decision import Interrupted
from tenure.policy.lifecycle.deadlines import action_of
from tenure.policy.lifecycle.ready import expiry_of, has_expired, is_under_budget
from tenure.policy.lifecycle.repair import Repair, decide_repair
from workflows.activity_options import PATCH, named
from workflows.nodeclaim_context import Life
from workflows.phases.failure import disrupt, give_up, lost, ref
from workflows.phases.interruption import goes, leave, starting
from workflows.phases.repair import repair

LOOK_AGAIN = timedelta(seconds=10)
LOOK_SLOWEST = timedelta(minutes=5)
SETTLE = timedelta(seconds=10)
"""What holds a node up is written to its NodeClaim once it has held for this long."""


async def initialization(life: Life) -> Phase:
    looked_at, told, refuted = -1, "", 0
    while True:
        if life.leaving:
            life.change(disruption="Deleted")
            return Phase.DRAIN
        if goes(starting(life)):
            return await leave(life)
        if _expires_here(life) and has_expired(life.state, life.now):
            life.change(disruption="Expired")
            await disrupt(life, reason="Expired")
            return Phase.DRAIN
        if life.overdue() and not life.state.overdue:
            told = _holding(life) or life.state.blocked_by
            life.change(blocked_by=told)
            life.mark_overdue()
            await _say(life, told)
        if life.state.overdue and not life.alarmed():
            return Phase.READY if await _initialize(life) else await _give_up(life)
        if decide_repair(life.state, life.now).do != "wait":
            if await repair(life):
                return Phase.DRAIN
            continue
        if _complete(life) and life.state.seen.number > looked_at:
            looked_at = life.state.seen.number
            if await _initialize(life):
                return Phase.READY
            refuted += 1
            continue
        if not life.state.seen.node_name:
            if await lost(life):
                return Phase.DRAIN
            continue
        if _complete(life):
            await _reconsider(life, looked_at, refuted)
            looked_at = -1
            continue
        told = await _wait(life, told, looked_at)


async def _reconsider(life: Life, looked_at: int, refuted: int) -> None:
    """The live state contradicted the watch, which may have nothing more to say: look again, ever more slowly."""
    pause = min(LOOK_SLOWEST, LOOK_AGAIN * 2 ** min(refuted, 6))
    await life.wait(
        lambda: life.leaving or goes(starting(life)) or life.state.seen.number > looked_at,
        until=life.now + pause,
        summary="another look",
    )


async def _give_up(life: Life) -> Phase:
    """What a LifecyclePolicy wants of a node that is overdue: away with it, with its pods' leave or without. Before, it
    was tried once more, live: nobody may have been at work when the Node became Ready."""
    at_once = action_of(life.state.seen.rules, Phase.INITIALIZATION) == "terminate"
    why = life.state.blocked_by or _holding(life) or "nothing is known to hold it up"
    await give_up(life, reason="InitializationTimeout", message=f"not initialized in time: {why}", at_once=at_once)
    return Phase.DRAIN


async def _wait(life: Life, told: str, looked_at: int) -> str:
    """Wait for news or the deadline; say what holds the node up, once, if it still does after a while."""
    why = _holding(life)
    untold = bool(why) and why != told
    ends = _ends(life)
    marks = (life.now + SETTLE if untold else life.next_mark(), ends[0], ends[1].until, ends[2].until)
    moved = life.moved_since()
    news = await life.wait(
        lambda: (
            moved()
            or life.leaving
            or _holding(life) != why
            or (_complete(life) and life.state.seen.number > looked_at)
            or _ends(life) != ends
        ),
        until=min((one for one in marks if one), default=None),
        summary="initialization",
    )
    if news:
        return told
    if untold and (life.state.overdue or not life.overdue()):
        life.block(why)
        await _say(life, why)
        return why
    life.notice_slow()
    return told


async def _initialize(life: Life) -> bool:
    answer = await life.insist(
        lambda options: workflow.execute_activity_method(JoiningActivities.initialize_node, ref(life), **options),
        named(PATCH, f"initialize {life.state.node_name}"),
    )
    if answer.outcome == "initialized":
        life.change(initialized=True, boot_id=answer.boot_id)
        life.change(expires=answer.expires, lifetime=answer.lifetime)
        return True
    if answer.outcome == "waiting":
        life.block(answer.waiting_for)
    return False


async def _say(life: Life, why: str) -> None:
    """On the condition; of a machine that rebooted by an event, since the condition never reverts (reference 3.4)."""
    reason, _, message = why.partition(": ")
    again = life.state.initialized
    report = Report(
        claim=ref(life),
        condition="" if again else labels.INITIALIZED_CONDITION,
        reason=reason,
        message=f"the machine rebooted, and its Node is not back yet: {why}" if again else message,
        event=labels.HAS_REBOOTED if again else "",
    )
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, f"say {reason}"))


def _ends(life: Life) -> tuple[datetime | None, Repair, Interrupted]:
    """When it expires, what its health asks for, and what AWS's word does."""
    expiry = expiry_of(life.state) if _expires_here(life) else None
    return expiry, decide_repair(life.state, life.now), starting(life)


def _expires_here(life: Life) -> bool:
    """Budgets count nodes that were initialized: another needs no permit, and one of those asks once it is back."""
    return not (life.state.initialized and is_under_budget(life.state))


def _holding(life: Life) -> str:
    seen = life.state.seen
    if not seen.node_ready:
        return "NodeNotReady: the kubelet does not report Ready"
    return seen.waiting_for[0] if seen.waiting_for else ""


def _complete(life: Life) -> bool:
    return not _holding(life)
