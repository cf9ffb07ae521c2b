"""Drain: cordon, evict through the Eviction API, wait for pods and volumes. Before termination.

A drain without a termination grace period waits as long as a PodDisruptionBudget or a do-not-disrupt pod holds it,
and says so; the deadline makes it overdue, never forceful. A LifecyclePolicy may have it escalate, or give up and go
back to ready; `tenure/policy/drain/decision.py` decides.
"""

from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

from activities.nodeclaim.drain import DrainActivities
from tenure.apis.lifecyclepolicy import DrainRules
from tenure.model.disruption.drain import DrainState, GaveUp
from tenure.model.nodeclaim_requests import DrainAsked, Drained, GiveUpAsked
from tenure.model.nodeclaim_state import Phase
from tenure.policy.drain.decision import DrainStep, again_at, decide_drain
from tenure.policy.hooks.decision import given_up
from tenure.policy.lifecycle.ready import drain_rules
from workflows.activity_options import DRAIN, PATCH, SELDOM, leaving, named, patience_of
from workflows.nodeclaim_context import Life
from workflows.phases.failure import ref
from workflows.phases.hooks import run_hooks
from workflows.phases.interruption import called_off, forced, go_on, holding, is_overtaken, overtake
from workflows.phases.pause import drain_held
from workflows.phases.ready import withdraw


async def drain(life: Life) -> Phase:
    if not await _is_prepared(life):
        return Phase.READY
    step = DrainStep(do="wait")
    while True:
        life.roll_if_due()
        await _hasten(life)
        call = partial(_drain, life, step)
        cluster = life.state.identity.cluster
        answer = await life.insist(call, leaving(DRAIN, cluster, f"drain {life.state.node_name}"))
        if answer is not None:
            life.note_left(answer.left)
        if answer is not None and answer.outcome != "waiting":
            life.change(drain=None)
            await run_hooks(life, "afterDrain")
            return Phase.TERMINATION
        if answer is not None:
            _remember(life, answer)
        go_on(life)
        step = _given_up(life) or _braked(life) or _blocked(life)
        if step.do == "give up" and await _give_up(life, step):
            return Phase.READY
        if life.overdue():
            life.mark_overdue()


async def _is_prepared(life: Life) -> bool:
    """By the hooks before it; False where the drain is given up instead."""
    while why := await run_hooks(life, "beforeDrain", lambda one: called_off(one) or drain_held(one)):
        if await _give_up(life, DrainStep(do="give up", why=why)):
            return False
    return True


def _rules(life: Life) -> DrainRules | None:
    return drain_rules(life.state)


async def _drain(life: Life, step: DrainStep, options: Any) -> Drained | None:
    """None when the rules changed meanwhile, so that the activity has to be told anew."""
    rules, known, hold = _rules(life), life.state.drain, holding(life)
    asked = DrainAsked(
        claim=ref(life),
        known_blockers=life.state.blocked_by,
        known=known.verdict if known else None,
        patience=patience_of(life.now, step.until, hold.until).total_seconds(),
        began=life.state.since,
        keep=bool(known and known.keep),
        escalate=step.do == "escalate",
        rules=rules,
        held=hold.held,
        override=hold.override,
    )
    if not asked.stoppable:
        options = {**options, **SELDOM}
    if known and known.keep:
        # What is given up must not be taken out of service again by a look that was still under way.
        options = {**options, "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED}
    under_way = workflow.start_activity_method(DrainActivities.drain_node, asked, **options)

    def changed() -> bool:
        return _rules(life) != rules or holding(life) != hold or bool(drain_held(life))

    await workflow.wait_condition(lambda: under_way.done() or changed() or is_overtaken(life))
    told_anew = not under_way.done()
    if told_anew:
        under_way.cancel()
    try:
        answer: Drained = await under_way
        return answer
    except ActivityError as error:
        # What it was cancelled for may be over again by now.
        if is_cancelled_exception(error) and told_anew:
            return None
        raise


async def _hasten(life: Life) -> None:
    """AWS leaves less time by now than what the node was drained for."""
    if is_overtaken(life):
        await overtake(life)
        go_on(life)


def _braked(life: Life) -> DrainStep | None:
    """A pause came, or the permit is called back."""
    why = drain_held(life)
    return DrainStep(do="give up", why=why) if why else None


def _given_up(life: Life) -> DrainStep | None:
    """AWS took back what the node was drained for, and it can still be kept."""
    why = called_off(life)
    return DrainStep(do="give up", why=why) if why else None


def _blocked(life: Life) -> DrainStep:
    """What follows from how long it is held. AWS does not wait: what it drains for is not given up."""
    step = decide_drain(_rules(life), life.state.drain or DrainState(), life.now)
    return DrainStep(do="wait") if step.do == "give up" and forced(life) else step


def _remember(life: Life, answer: Drained) -> None:
    """Shown in the details also where the line that is searched for stays the same."""
    life.change(drain=DrainState(keep=answer.keep, verdict=answer.verdict))
    if answer.blockers == life.state.blocked_by:
        life.show()
    life.block(answer.blockers)


async def _give_up(life: Life, step: DrainStep) -> bool:
    """Uncordon the node and hand the permit back; False where the NodeClaim has come to be deleted meanwhile."""
    rules, held = _rules(life), drain_held(life)
    asked = GiveUpAsked(claim=ref(life), why=step.why)
    kept = await workflow.execute_activity_method(
        DrainActivities.keep_node, asked, **named(PATCH, "give the drain up: keep the node")
    )
    if not kept:
        life.change(drain=life.state.drain.model_copy(update={"keep": False}) if life.state.drain else None)
        return False
    # What a pause ended goes on when that is over.
    again = life.now if held or called_off(life) else again_at(rules, life.now)
    gave_up = GaveUp(at=life.now, again=again, why=step.why)
    life.change(
        drain=None, gave_up=gave_up, disruption="", recalled="", interrupted="", hooks=given_up(life.state.hooks)
    )
    await withdraw(life)
    return True
