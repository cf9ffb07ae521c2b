"""Braked: a node that a person paused, or whose NodePool calls its permit back. Beside the phase that it is in.

A permit that was not used yet is given back; a drain that can be given up is; one whose NodeClaim is being deleted
cannot be undone, and the answer to a pause says so.
"""

from contextlib import suppress

from temporalio import workflow
from temporalio.exceptions import FailureError

from model.disrupting import PermitRecalled
from model.lifecycle import ClaimState, Phase
from model.pauses import MirrorAsked
from policy.pauses import holds, words
from workflows.brakes import Brake
from workflows.life import Life
from workflows.phases.interrupted import forced

BRAKED = "drain-braked"
"""Histories from before a pause ended a drain go on with it."""


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
