"""What phases share when a claim cannot be helped: delete the NodeClaim, saying why; its pods are planned anew.

A replacement tells the workflow of its disruption when it is ready, or as soon as it is clear that it never will be.

Whoever made the NodeClaim wrote that workflow on it; a node that replaces none has no event of this.
"""

from collections.abc import Callable
from contextlib import suppress

from temporalio import workflow
from temporalio.exceptions import FailureError

from activities.disruption import DisruptionActivities
from activities.nodeclaim.instance import TerminationActivities
from tenure.apis import labels
from tenure.model.nodeclaim_requests import ClaimRef, DisruptionAsked, Report
from tenure.model.nodeclaim_state import Phase
from tenure.model.observations import StartEnded
from tenure.policy.disruption.commands import replacement_says
from tenure.policy.interruption.decision import acts
from tenure.policy.lifecycle.ready import look_pause
from tenure.policy.nodepool import counts
from workflows.activity_options import PATCH, named
from workflows.nodeclaim_context import Life


async def give_up(life: Life, *, reason: str, message: str, at_once: bool = False) -> None:
    """An event with the reason, then deletion. Conditions keep what was last known."""
    life.change(disruption=reason)
    report = Report(claim=ref(life), event=reason, message=message, warning=True)
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, f"say {reason}"))
    await _tell_pool(life, reason=reason, message=message)
    await disrupt(life, reason=reason, at_once=at_once)


async def _tell_pool(life: Life, *, reason: str, message: str) -> None:
    """A start that failed counts for its NodePool's condition NodeRegistrationHealthy. Best effort: a pool without a
    workflow has nobody to tell."""
    state = life.state
    refused = state.refused.reason if state.refused else ""
    if not state.identity.pool or not counts(state.phase, reason, refused):
        return
    why = (refused or labels.LAUNCH_FAILED) if state.phase is Phase.LAUNCH else labels.REGISTRATION_FAILED
    failed = StartEnded(uid=life.uid, at=life.now, reason=why, message=f"{life.name}: {message}"[:300])
    with suppress(FailureError):
        await workflow.get_external_workflow_handle(life.pool_workflow()).signal("start_failed", failed)


async def disrupt(life: Life, *, reason: str, at_once: bool = False) -> None:
    """Delete the NodeClaim forcefully: by a deadline or expiry, which no budget holds up. `at_once`: no pod either."""
    asked = DisruptionAsked(claim=ref(life), reason=reason, voluntary=False, at_once=at_once)
    await workflow.execute_activity_method(
        DisruptionActivities.disrupt_claim, asked, **named(PATCH, f"delete the NodeClaim: {reason}")
    )


async def lost(life: Life) -> bool:
    """The Node is gone from the cluster: give the claim up if its instance is gone too, else wait for either."""
    before = life.state.seen
    if await _ended(life, "the Node and its instance are gone"):
        return True
    await _say_lost(life)
    if life.state.seen is not before:
        return False
    pause = look_pause(_looked(life))
    await life.wait(news(life), until=life.now + pause, summary="the Node's return")
    return False


def news(life: Life) -> Callable[[], bool]:
    """Whether the watch has seen it anew, or AWS says by now what makes it go at once."""
    seen = life.state.seen
    return lambda: life.state.seen is not seen or acts(life.state, life.now)


async def dead(life: Life) -> bool:
    """The Node has not been Ready for a while: give the claim up if its instance is gone (reference 3.8)."""
    if await _ended(life, "the instance is gone and its Node is not Ready"):
        return True
    _looked(life)
    life.change(unready_since=life.now)
    return False


def _looked(life: Life) -> int:
    """The instance runs; how often that was found in a row."""
    life.change(looks=life.state.looks + 1)
    return life.state.looks


async def _ended(life: Life, message: str) -> bool:
    runs = await workflow.execute_activity_method(
        TerminationActivities.instance_runs, ref(life), **named(PATCH, "does the instance still run?")
    )
    if not runs:
        await give_up(life, reason="GarbageCollected", message=message)
    return not runs


async def _say_lost(life: Life) -> None:
    """Once, however often it is looked for."""
    why = f"{labels.NODE_NOT_FOUND}: the Node left the cluster while its instance runs on"
    if life.state.blocked_by == why:
        return
    life.block(why)
    report = Report(claim=ref(life), event=labels.NODE_NOT_FOUND, message=why.partition(": ")[2], warning=True)
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, "say that it is lost"))


def ref(life: Life) -> ClaimRef:
    launched = life.state.launched
    return ClaimRef(
        name=life.name,
        uid=life.uid,
        node_name=life.state.node_name,
        provider_id=launched.provider_id if launched else "",
        initialized=life.state.initialized,
    )


async def tell_replaced(life: Life) -> None:
    """Once. A disruption that is over needs no telling."""
    said = replacement_says(life.state)
    if said is None:
        return
    with suppress(FailureError):
        await workflow.get_external_workflow_handle(life.state.identity.replaces).signal("replacement", said)
    life.change(said_ready=said.ready)
