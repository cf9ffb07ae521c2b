"""What phases share when a claim cannot be helped: delete the NodeClaim, saying why; its pods are planned anew."""

from datetime import timedelta

from temporalio import workflow

from activities.disruption import DisruptionActivities
from activities.termination import TerminationActivities
from model import labels
from model.steps import ClaimRef, DisruptionAsked, Report
from workflows.life import Life
from workflows.options import PATCH, named

LOOK_AGAIN = timedelta(minutes=2)
"""Between looks at an instance whose Node is missing (Karpenter's garbage collection, reference 3.8)."""


async def give_up(life: Life, *, reason: str, message: str, at_once: bool = False) -> None:
    """An event with the reason, then deletion. Conditions keep what was last known."""
    life.change(disruption=reason)
    report = Report(claim=ref(life), event=reason, message=message, warning=True)
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, f"say {reason}"))
    await disrupt(life, reason=reason, at_once=at_once)


async def disrupt(life: Life, *, reason: str, at_once: bool = False) -> None:
    """Delete the NodeClaim forcefully: by a deadline or expiry, which no budget holds up. `at_once`: no pod either."""
    asked = DisruptionAsked(claim=ref(life), reason=reason, voluntary=False, at_once=at_once)
    await workflow.execute_activity_method(
        DisruptionActivities.disrupt_claim, asked, **named(PATCH, f"delete the NodeClaim: {reason}")
    )


async def lost(life: Life) -> bool:
    """The Node is gone from the cluster: give the claim up if its instance is gone too, else wait for either."""
    if await _ended(life, "the Node and its instance are gone"):
        return True
    await _say_lost(life)
    seen = life.state.seen
    await life.wait(lambda: life.state.seen is not seen, until=life.now + LOOK_AGAIN, summary="the Node's return")
    return False


async def dead(life: Life) -> bool:
    """The Node has not been Ready for a while: give the claim up if its instance is gone (reference 3.8)."""
    if await _ended(life, "the instance is gone and its Node is not Ready"):
        return True
    life.change(unready_since=life.now)
    return False


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
