"""What phases share when a claim cannot be helped: delete the NodeClaim, saying why; its pods are planned anew."""

from temporalio import workflow

from activities.disruption import DisruptionActivities
from model.steps import ClaimRef, DisruptionAsked, Report
from workflows.life import Life
from workflows.options import PATCH, named


async def give_up(life: Life, *, reason: str, message: str) -> None:
    """An event with the reason, then deletion. Conditions keep what was last known."""
    life.change(disruption=reason)
    report = Report(claim=ref(life), event=reason, message=message, warning=True)
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, f"say {reason}"))
    await disrupt(life, reason=reason)


async def disrupt(life: Life, *, reason: str) -> None:
    """Delete the NodeClaim forcefully: by a deadline or expiry, which no budget holds up."""
    asked = DisruptionAsked(claim=ref(life), reason=reason, voluntary=False)
    await workflow.execute_activity_method(
        DisruptionActivities.disrupt_claim, asked, **named(PATCH, f"delete the NodeClaim: {reason}")
    )


def ref(life: Life) -> ClaimRef:
    launched = life.state.launched
    return ClaimRef(
        name=life.name,
        uid=life.uid,
        node_name=life.state.node_name,
        provider_id=launched.provider_id if launched else "",
    )
