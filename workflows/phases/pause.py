"""Braked: a node that a person paused, or whose NodePool calls its permit back. Beside the phase that it is in.

A permit that was not used yet is given back; a drain that can be given up is; one whose NodeClaim is being deleted
cannot be undone, and the answer to a pause says so.

In service: a node that was to go and does not takes pods again, and uses no budget up.

Whoever deletes a NodeClaim taints its node first. Where the permit lapsed meanwhile, or a person paused the node,
nothing stands behind the taint any more.
"""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from tenure.model.disruption.commands import PermitRecalled
from tenure.model.nodeclaim_state import ClaimState, Phase
from tenure.model.operator_requests import MirrorAsked
from tenure.policy.lifecycle.pauses import holds, words
from workflows.activity_options import PATCH, named
from workflows.nodeclaim_context import Life
from workflows.pausable import Brake
from workflows.phases.failure import ref
from workflows.phases.interruption import forced


def brake_of(life: Life) -> Brake:
    return Brake(
        lambda: _target(life.state),
        lambda: life.state,
        life.change,
        changed=life.show,
        began=lambda why: _call_back(life, why),
        note=lambda: _note(life.state),
        shown=False,
    )


def give_back(life: Life, why: str) -> None:
    """The NodePool has taken the permit back already; to ask anew is to be told what holds it. Where the permit is
    being used at this moment, the drain that follows is given up if it can be."""
    permit = life.state.permit
    if life.state.phase is Phase.DRAIN:
        life.change(recalled=why)
    elif permit and permit.granted:
        life.change(permit=None, permit_asked=None, recalled=why)


def is_held(life: Life) -> bool:
    """Nothing voluntary is to be begun, or to be tried again."""
    return holds(life.state.pause, life.now) or bool(life.state.recalled)


def drain_held(life: Life) -> str:
    """Why a drain that can be given up is given up now, in words; empty for none."""
    state = life.state
    if state.drain is None or not state.drain.keep or forced(life):
        return ""
    if holds(state.pause, life.now) and state.pause:
        return f"NodeClaim {life.name} {words(state.pause)}"
    return state.recalled


def _target(state: ClaimState) -> MirrorAsked:
    return MirrorAsked(
        kind="NodeClaim", name=state.identity.name, uid=state.identity.uid, node_name=state.seen.node_name
    )


def _note(state: ClaimState) -> str:
    if state.phase in (Phase.DRAIN, Phase.TERMINATION) and not (state.drain and state.drain.keep):
        return "Its NodeClaim is being deleted, which cannot be undone: it goes all the same"
    return ""


async def _call_back(life: Life, why: str) -> None:
    """A command that has a permit for this node gives it back. Best effort: a pool without a workflow gave none."""
    if life.state.identity.pool:
        pool = workflow.get_external_workflow_handle(life.pool_workflow())
        with suppress(FailureError):
            await pool.signal("recall", PermitRecalled(claim_uid=life.uid, why=why))


TRIES_FOR: Final = timedelta(seconds=30)
"""At a stretch: the node may have to go for another reason meanwhile."""
TRIES_AGAIN: Final = timedelta(minutes=1)


async def put_back(life: Life) -> bool:
    """Whether it was, just now. What fails is tried again for as long as it takes."""
    if not life.state.marked:
        return False
    options = {**named(PATCH, "put the node back into service"), "schedule_to_close_timeout": TRIES_FOR}
    try:
        await workflow.execute_activity_method(DisruptionActivities.put_back, ref(life), **options)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return False
    life.change(marked=False)
    return True


def again_if_marked(life: Life, until: datetime | None) -> datetime | None:
    """No later than this one is waited, where the node is still to be put back."""
    again = life.now + TRIES_AGAIN if life.state.marked else None
    return min((one for one in (until, again) if one is not None), default=None)
