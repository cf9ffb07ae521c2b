"""How a launched instance is written onto its NodeClaim, by whoever learns of it: a launch, or a look back."""

from datetime import datetime

from activities.ports import Claims, ConditionPatch, LaunchFacts
from model import labels
from model.kinds import NodeClaim
from model.quantity import format_resources

LAUNCHED = (
    ConditionPatch(type=labels.LAUNCHED, status="True"),
    ConditionPatch(type=labels.REGISTERED_CONDITION, status="Unknown", reason=labels.NODE_NOT_FOUND),
    ConditionPatch(type=labels.INITIALIZED_CONDITION, status="Unknown", reason=labels.NODE_NOT_FOUND),
)


async def show_launched(claims: Claims, name: str, uid: str, facts: LaunchFacts, *, now: datetime) -> NodeClaim | None:
    """Labels, status and conditions (reference 3.2 to 3.4); the NodeClaim's own labels win. None when it is gone."""
    return await claims.patch(
        name,
        uid,
        default_labels=facts.labels,
        annotations=facts.annotations,
        status={
            "providerID": facts.provider_id,
            "imageID": facts.image_id,
            "capacity": format_resources(facts.capacity),
            "allocatable": format_resources(facts.allocatable),
        },
        conditions=LAUNCHED,
        now=now,
    )
