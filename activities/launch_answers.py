"""What CreateFleet's errors come to for a NodeClaim, and how failed launches are counted. Pure but for the counter."""

from collections.abc import Mapping, Sequence
from typing import Final

from temporalio import activity

from model import labels
from model.kinds import EC2NodeClass
from model.launches import FleetAnswer, FleetError, LaunchRefused

FAILURES: Final = "karpenter_cloudprovider_instance_launch_failures_total"
_LIMIT: Final = 300
"""Characters of a message."""
_PLACES: Final = 5


def refusal_of(answer: FleetAnswer) -> LaunchRefused:
    """Only capacity is missing: to be had elsewhere, or planned anew. Anything else may pass, and is tried again."""
    worst = next((error for error in answer.errors if not error.insufficient), None)
    if worst is None:
        return LaunchRefused(reason=labels.INSUFFICIENT_CAPACITY, message=_missing(answer.errors))
    said = f"{worst.code}: {worst.message}"[:_LIMIT]
    message = f"{said}; {worst.mend}" if worst.mend else said
    return LaunchRefused(reason=worst.reason or labels.LAUNCH_FAILED, message=message, final=False)


def count_failures(errors: Sequence[FleetError], node_class: EC2NodeClass | None) -> None:
    """One for each error of the answer, by its place; the reason is EC2's code."""
    if not errors:
        return
    counter = activity.metric_meter().create_counter(FAILURES, "Launches that EC2 answered with an error")
    zone_ids = _zone_ids(node_class)
    for error in errors:
        place = {"zone": error.zone, "zone_id": zone_ids.get(error.zone, ""), "capacity_type": error.capacity_type}
        counter.add(1, {**place, "reason": error.code})


def _missing(errors: Sequence[FleetError]) -> str:
    places = sorted({f"{error.code} {error.instance_type} {error.zone}".strip() for error in errors})
    if not places:
        return "EC2 gave fewer instances than asked"
    more = f"; and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
    mend = next((f"; {error.mend}" for error in errors if error.mend), "")
    return f"{'; '.join(places[:_PLACES])}{more}{mend}"[:_LIMIT]


def _zone_ids(node_class: EC2NodeClass | None) -> Mapping[str, str]:
    return {subnet.zone: subnet.zone_id for subnet in node_class.status.subnets} if node_class else {}
