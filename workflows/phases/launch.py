"""Launch: from a NodeClaim to an instance. First phase; registration comes next.

A claim made by a plan waits for what its launch group is answered; one that a person made launches itself, as a
group of one. Either way the request is frozen in a history before EC2 hears of it.
"""

from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from activities.nodeclaim.launch import LaunchActivities
from tenure.apis import labels
from tenure.model.launch import (
    DELETED,
    GroupOutcome,
    Launched,
    LaunchGroup,
    LaunchPrepared,
    LaunchRefused,
    LaunchResult,
    Member,
    latest,
)
from tenure.model.nodeclaim_requests import ClaimRef, LaunchAsked
from tenure.model.nodeclaim_state import Phase
from tenure.model.observations import Joining, MarksSeen
from workflows import ids
from workflows.activity_options import CREATE_FLEET, PREPARE, launch_options, named
from workflows.nodeclaim_context import Life
from workflows.phases.failure import give_up
from workflows.phases.recovery import is_late, recall

AGAIN_IN = timedelta(seconds=10)
"""Between attempts of a claim that launches itself."""
AGAIN_IN_OVERDUE = timedelta(minutes=2)
"""The same past the deadline, where it goes on."""
MOST_ATTEMPTS = 10
"""That follow each other at once, each leaving out what the ones before were refused."""


async def launch(life: Life) -> Phase:
    if is_late(life) and (known := await recall(life)):
        return known
    if life.state.refused is None and (life.state.identity.group_id or await _join(life)):
        await _with_its_group(life)
        unheard = life.state.refused is None or _went_first(life)
        if life.state.launched is None and unheard and (known := await recall(life)):
            return known
    return await _alone(life)


async def _join(life: Life) -> bool:
    """A claim of a pool that no plan made: with others that are alike it is one call of many.

    True: Provisioning has it in hand. Where there is none to be told, the claim launches itself."""
    state, identity = life.state, life.state.identity
    if state.joined:
        return True
    if not (identity.pool and identity.alike) or state.group is not None or state.launched is not None:
        return False
    wish = Joining(
        name=life.name, uid=life.uid, pool=identity.pool, node_class=identity.node_class, alike=identity.alike
    )
    try:
        await workflow.get_external_workflow_handle(ids.provisioning(identity.cluster)).signal("join", wish)
    except ApplicationError:
        return False
    life.change(joined=True)
    return True


async def _with_its_group(life: Life) -> None:
    """Wait for the group's word, even while being deleted: the instance may be on its way already.

    A refusal that may pass is the group's last word too: from there on the claim tries by itself, with its own tokens.
    """
    await life.wait_or_alarm(
        lambda: _answered(life) or life.state.refused is not None or (life.state.overdue and life.leaving),
        summary="launch deadline",
    )
    refused = life.state.refused
    if refused and not refused.final:
        life.change(launch_attempt=life.state.launch_attempt + 1)
        life.block(f"{refused.reason}: {refused.message}")
        await _pause(life)


async def _alone(life: Life) -> Phase:
    while not _answered(life) and _may_try(life):
        if life.leaving:
            break
        result = await _attempt(life)
        if result is None:
            return await recall(life) or Phase.TERMINATION
        if isinstance(result, Launched):
            life.change(launched=result, refused=None, group=None)
        else:
            life.change(refused=result, group=None, launch_attempt=life.state.launch_attempt + 1)
            if not result.final:
                life.block(f"{result.reason}: {result.message}")
                await _pause_unless_elsewhere(life, result)
    return await _after(life)


def _may_try(life: Life) -> bool:
    """Until the deadline, and on where then a person is waited for; one who is first heard of after it has one try,
    unless a group may be out for it."""
    untried = life.state.launch_attempt == 1 and not life.state.identity.group_id and not life.state.joined
    return untried or not life.overdue() or life.raise_alarm()


async def _attempt(life: Life) -> LaunchResult | None:
    """One token's worth: freeze, then call. A run that rolled or restarted in between calls with the same group.

    None when the NodeClaim turns out to have an instance already."""
    me = Member(name=life.name, uid=life.uid)
    try:
        if life.state.group is None:
            prepared = await workflow.execute_activity_method(
                LaunchActivities.prepare_launch,
                _asked(life),
                **named(PREPARE, "prepare launch"),
            )
            match prepared.preparation:
                case None:
                    return None
                case LaunchRefused() as refused:
                    return refused
                case LaunchPrepared(request=request):
                    life.change(
                        group=LaunchGroup(
                            group_id=life.name,
                            attempt=life.state.launch_attempt,
                            pool=life.state.identity.pool,
                            members=(me,),
                            request=request,
                        )
                    )
        group = life.state.group
        assert group is not None
        outcome = await life.insist(
            lambda options: workflow.execute_activity_method(LaunchActivities.launch_alone, group, **options),
            {**named(CREATE_FLEET, "CreateFleet"), **launch_options(life.state.identity.cluster, group.pool, 1)},
        )
    except ActivityError as error:
        return LaunchRefused(reason="LaunchFailed", message=str(error.cause or error), final=False)
    return await _learn(life, outcome)


async def _learn(life: Life, outcome: GroupOutcome) -> LaunchResult:
    """Where only some offerings were refused, the next attempt leaves them out; Provisioning hears of them too."""
    marks = outcome.unavailable
    if marks:
        life.change(unavailable=latest((*life.state.unavailable, *marks), life.now))
        with suppress(FailureError):
            provisioning = workflow.get_external_workflow_handle(ids.provisioning(life.state.identity.cluster))
            await provisioning.signal("refused", MarksSeen(unavailable=marks))
    result = outcome.results.get(life.uid) or LaunchRefused(reason="NodeClaimGone", message=f"{life.name} is gone")
    if isinstance(result, LaunchRefused) and result.final and marks and life.state.launch_attempt < MOST_ATTEMPTS:
        return result.model_copy(update={"final": False})
    return result


def _asked(life: Life) -> LaunchAsked:
    return LaunchAsked(
        claim=ClaimRef(name=life.name, uid=life.uid),
        unavailable=latest(life.state.unavailable, life.now),
        again=life.state.launch_attempt > 1,
    )


async def _pause_unless_elsewhere(life: Life, refused: LaunchRefused) -> None:
    """Another offering may have room now; what else is wrong takes its time."""
    if refused.reason != labels.INSUFFICIENT_CAPACITY:
        await _pause(life)


async def _pause(life: Life) -> None:
    deadline = life.state.deadline or life.now
    until = life.now + AGAIN_IN_OVERDUE if life.alarmed() else min(life.now + AGAIN_IN, deadline)
    await life.wait(lambda: life.state.seen.deleting, until=until, summary="before the next attempt")


def _answered(life: Life) -> bool:
    refused = life.state.refused
    return life.state.launched is not None or (refused is not None and refused.final)


def _went_first(life: Life) -> bool:
    """Its group found it deleted, whether the watch has said so or not."""
    return life.state.refused is not None and life.state.refused.reason == DELETED


async def _after(life: Life) -> Phase:
    state = life.state
    if state.launched:
        return Phase.REGISTRATION
    if life.leaving or _went_first(life):
        life.change(disruption="Deleted")
    elif state.refused and state.refused.final:
        await give_up(life, reason=state.refused.reason, message=state.refused.message)
    else:
        life.mark_overdue()
        await give_up(life, reason="LaunchTimeout", message=state.blocked_by or "no instance before the deadline")
    return Phase.TERMINATION
