"""Registration: the instance's Node joins and takes on the claim's labels, taints and finalizer.

After launch, before initialization. A Node that never joins is given up at the deadline (Karpenter's liveness),
unless a LifecyclePolicy wants it kept.
"""

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, RetryState

from activities.disruption import DisruptionActivities
from activities.nodeclaim.registration import JoiningActivities
from tenure.apis import labels
from tenure.model.nodeclaim_requests import Report
from tenure.model.nodeclaim_state import Phase
from workflows.activity_options import PATCH, named
from workflows.nodeclaim_context import Life
from workflows.phases.failure import give_up, ref
from workflows.phases.interruption import changed, goes, leave, starting

LOOK_AGAIN = timedelta(seconds=5)
"""The watch has seen a Node that the live read did not find: it is looked for again after this long, ..."""
LOOK_SLOWEST = timedelta(minutes=1)
"""... and then ever more slowly, ..."""
LOOK_OVERDUE = timedelta(minutes=10)
"""... and past the deadline, where it is kept, as slowly as this."""
SEVERAL = "MultipleNodesFound: more than one Node has this instance's provider id"


async def registration(life: Life) -> Phase:
    looked_at, looks = -1, 0
    while True:
        while not life.overdue() or life.alarmed():
            again = life.now + _pause(life, looks) if looks else None
            event = starting(life)
            happened = await _news(life, looked_at, min((one for one in (again, event.until) if one), default=None))
            if life.leaving:
                life.change(disruption="Deleted")
                return Phase.TERMINATION
            if goes(starting(life)):
                return await leave(life)
            if happened and not _joined(life, looked_at):
                continue
            if not happened and again is None:
                if event.until is None or life.overdue():
                    break
                continue
            looked_at, looks = life.state.seen.number, looks + 1
            if await _register(life):
                return Phase.INITIALIZATION
        if not life.overdue():
            continue
        life.mark_overdue()
        if await _register(life):
            return Phase.INITIALIZATION
        if not life.alarmed():
            break
    await give_up(life, reason="RegistrationTimeout", message=f"no Node joined: {life.state.blocked_by or 'none seen'}")
    return Phase.TERMINATION


def _pause(life: Life, looks: int) -> timedelta:
    slowest = LOOK_OVERDUE if life.alarmed() else LOOK_SLOWEST
    doublings: int = 2 ** min(looks - 1, 10)
    return min(LOOK_AGAIN * doublings, slowest)


async def _news(life: Life, looked_at: int, again: datetime | None) -> bool:
    other = changed(life)
    return await life.wait_in_time(
        lambda: life.leaving or _joined(life, looked_at) or other(), sooner=again, summary="registration deadline"
    )


async def _register(life: Life) -> bool:
    """Past the deadline it is tried once more, live: nobody may have been at work when the Node joined."""
    if life.state.seen.node_count > 1:
        await _say_several(life)
        return False
    life.change(node_name=life.state.seen.node_name)
    named_options = named(PATCH, f"register {life.state.node_name or 'whichever Node joined'}")
    options = named_options if life.overdue() else life.bounded(named_options)
    try:
        answer = await workflow.execute_activity_method(JoiningActivities.register_node, ref(life), **options)
    except ActivityError as error:
        if error.retry_state is not RetryState.TIMEOUT:
            raise
        life.block(str(error.cause or error)[:200])
        return False
    match answer.outcome:
        case "registered":
            life.change(registered=True, node_name=answer.node_name, boot_id=answer.boot_id)
            life.change(expires=answer.expires, lifetime=answer.lifetime)
            return True
        case "several nodes":
            await _say_several(life)
        case "no node":
            life.block("NodeNotFound: the Node was seen and is not there")
        case "gone":
            life.change(seen=life.state.seen.model_copy(update={"exists": False}))
    return False


async def _say_several(life: Life) -> None:
    """Once, on the condition too (reference 3.3)."""
    if life.state.blocked_by == SEVERAL:
        return
    life.block(SEVERAL)
    reason, _, message = SEVERAL.partition(": ")
    report = Report(
        claim=ref(life), condition=labels.REGISTERED_CONDITION, status="False", reason=reason, message=message
    )
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, f"say {reason}"))


def _joined(life: Life, looked_at: int) -> bool:
    seen = life.state.seen
    return bool(seen.node_name) and seen.number > looked_at
