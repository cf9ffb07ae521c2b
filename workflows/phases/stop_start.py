"""Cycled: a node's instance is stopped and started for maintenance that AWS announced, and the node is kept.

In ready, step by step: its pods leave as in a drain, EC2 stops and starts the instance, and once its machine is back
the node goes through initialization. What fails, or takes too long, becomes a drain that ends it, as without this.
"""

from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from activities.nodeclaim.drain import DrainActivities
from activities.nodeclaim.instance import CyclingActivities
from tenure.model.disruption.drain import DrainState
from tenure.model.interruption.records import Event, StopStart
from tenure.model.nodeclaim_requests import Cycled, DisruptionAsked, DrainAsked, Drained, GiveUpAsked
from tenure.model.nodeclaim_state import Phase
from tenure.policy.interruption.decision import cycle_deadline, decide_event, held_pods, live, overrides_for
from tenure.policy.interruption.events import done
from tenure.policy.lifecycle.ready import drain_rules
from workflows.activity_options import AT_LEAST, DRAIN, PATCH, TERMINATE, answered, leaving, named, patience_of
from workflows.nodeclaim_context import Life
from workflows.phases.failure import ref

BACK = "its instance was stopped and started, and is back"


async def stop_and_start(life: Life, key: str) -> Phase | None:
    """The phase that follows; None where all is to be decided anew."""
    known = life.state.stop
    if known is None or known.key != key or known.step in ("done", "failed"):
        life.change(stop=StopStart(key=key, since=life.now, boot_id=life.state.seen.boot_id))
        await _take_out(life)
    while True:
        stop = life.state.stop
        assert stop is not None
        match stop.step:
            case "drain":
                if not await _is_emptied(life, key):
                    await _put_back(life, "the node is not stopped for it any more")
                    life.change(stop=None)
                    return None
                _step(life, step="stop", deadline=life.now + cycle_deadline(life.state, key))
            case "stop" | "start":
                if not await _is_brought(life, stop):
                    return None
            case "back":
                return Phase.INITIALIZATION if await _is_back(life, stop) else None
            case _:
                return None


def _step(life: Life, **fields: Any) -> None:
    stop = life.state.stop
    assert stop is not None
    life.change(stop=stop.model_copy(update=fields), waits_until=fields.get("deadline", life.state.waits_until))
    life.show()


async def _take_out(life: Life) -> None:
    """With the reason on the NodeClaim, so that a rebuilt workflow puts the node back into service."""
    asked = DisruptionAsked(claim=ref(life), reason="StopStart", voluntary=False, keep=True)
    await workflow.execute_activity_method(
        DisruptionActivities.disrupt_claim, asked, **named(PATCH, "take the node out of service")
    )


async def _is_emptied(life: Life, key: str) -> bool:
    """False where the node is not to be stopped any more: it goes, AWS or the policy say otherwise, or it is late."""
    while (event := _wanted(life, key)) is not None:
        life.roll_if_due()
        held, override = held_pods(life.state, event, life.now), overrides_for(life.state, event)
        known = life.state.drain
        ends = [pods.until for pods in held if pods.held]
        asked = DrainAsked(
            claim=ref(life),
            known_blockers=life.state.blocked_by,
            known=known.verdict if known else None,
            patience=patience_of(life.now, event.starts, *ends).total_seconds(),
            began=life.state.stop.since if life.state.stop else None,
            keep=True,
            stay=True,
            rules=drain_rules(life.state),
            held=held,
            override=override,
        )
        answer = await _drained(life, key, event, asked)
        if answer is not None and answer.outcome != "waiting":
            life.change(drain=None)
            return True
        if answer is not None:
            life.change(drain=DrainState(keep=True, verdict=answer.verdict))
            life.block(f"is emptied to be stopped: {answer.blockers}")
    life.change(drain=None)
    return False


async def _drained(life: Life, key: str, event: Event, asked: DrainAsked) -> Drained | None:
    """None when it has to be told anew."""

    def other() -> bool:
        return _wanted(life, key) != event or held_pods(life.state, event, life.now) != asked.held

    options = leaving(DRAIN, life.state.identity.cluster, f"empty {life.state.node_name} to stop its instance")
    answer: Drained | None = await answered(DrainActivities.drain_node, asked, options, other)
    return answer


def _wanted(life: Life, key: str) -> Event | None:
    """The event, while it asks for this."""
    if life.leaving:
        return None
    found = [one for one in live(life.state) if decide_event(life.state, one, life.now).do != "nothing"]
    asks = {one.key: decide_event(life.state, one, life.now).do for one in found}
    if any(do in ("drain", "terminate") for do in asks.values()) or asks.get(key) != "stop":
        return None
    return next(one for one in found if one.key == key)


async def _is_brought(life: Life, stop: StopStart) -> bool:
    """To a stop, and up again. False where that failed: the node is to be drained as usual."""
    life.block("its instance is stopped for maintenance" if stop.step == "stop" else "its instance is started again")
    step = CyclingActivities.stop_instance if stop.step == "stop" else CyclingActivities.start_instance
    options = {**named(TERMINATE, f"{stop.step} the instance"), "schedule_to_close_timeout": _left(life, stop.deadline)}
    try:
        answer: Cycled = await workflow.execute_activity_method(step, ref(life), **options)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        answer = Cycled(outcome="unfit", why=str(error.cause or error)[:200])
    if answer.outcome != "done":
        await _fail(life, answer.why)
        return False
    _step(life, step="start" if stop.step == "stop" else "back")
    return True


def _left(life: Life, deadline: datetime | None) -> Any:
    return max(deadline - life.now, AT_LEAST) if deadline else None


async def _is_back(life: Life, stop: StopStart) -> bool:
    life.block("its machine boots after maintenance")
    news = await life.wait(
        lambda: _booted(life, stop) or life.leaving,
        until=stop.deadline,
        summary="until its machine is back",
    )
    if not news or not _booted(life, stop):
        if not life.leaving:
            await _fail(life, "its machine did not come back in time")
        return False
    life.change(notices=done(life.state.notices, stop.key), reboots=life.state.reboots + 1)
    await _put_back(life, BACK)
    _step(life, step="done", until=life.now)
    return True


def _booted(life: Life, stop: StopStart) -> bool:
    boot_id = life.state.seen.boot_id
    return bool(boot_id) and boot_id != stop.boot_id


async def _fail(life: Life, why: str) -> None:
    """`tenure/policy/interruption/decision.py` makes a drain of it."""
    life.block(f"stop and start came to nothing: {why}")
    _step(life, step="failed", until=life.now)


async def _put_back(life: Life, why: str) -> None:
    """Into service, where it is not being deleted."""
    asked = GiveUpAsked(claim=ref(life), why=why, event="StopStartOver", warning=False)
    await workflow.execute_activity_method(
        DrainActivities.keep_node, asked, **named(PATCH, "put the node back into service")
    )
    life.change(waits_until=None, blocked_by="")
