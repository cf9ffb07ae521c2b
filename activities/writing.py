"""How a launched instance is written onto its NodeClaim, and read back: by a launch, or by a look back."""

from datetime import datetime

from activities.ports import Claims, ConditionPatch, LaunchFacts
from model import labels
from model.kinds import NodeClaim
from model.launches import Launched
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


def launch_shown(claim: NodeClaim) -> Launched:
    """Of one that shows an instance."""
    return Launched(
        claim_uid=claim.uid,
        provider_id=claim.status.provider_id,
        instance_type=claim.instance_type,
        zone=claim.zone,
        capacity_type=claim.capacity_type,
        image_id=claim.status.image_id,
    )
