"""CreateFleet's words: the request that a launch group stands for, and the answer as values.

Pure on both sides. The request is made of nothing but the group, so that repeating it repeats the token's own request.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from aws.errors import INSUFFICIENT, SERVICE_LINKED_ROLE, SUBNET_FULL
from aws.launch_errors import SPREAD_GROUP_FULL, create_error_reason, how_to_mend, rank
from aws.tags import TAG_LAUNCH_GROUP, TAG_LAUNCH_TOKEN, as_list
from model import labels
from model.launches import FleetAnswer, FleetError, FleetInstance, LaunchGroup, LaunchOverride, LaunchRequest

_TAGGED: Final = ("fleet", "instance", "volume")
_TARGETS: Final[dict[str, str]] = {
    "default": "on-demand",
    "capacity-block": "capacity-block",
    "interruptible": "reserved-capacity",
}
"""What a fleet calls reserved capacity, by the kind of reservation."""
UNFULFILLABLE: Final = "UnfulfillableCapacity"


def create_fleet_request(group: LaunchGroup) -> dict[str, Any]:
    """What CreateFleet is told."""
    request = group.request
    found: dict[str, Any] = {
        "Type": "instant",
        "ClientToken": group.token(),
        "LaunchTemplateConfigs": _configs(request),
        "TargetCapacitySpecification": {
            "DefaultTargetCapacityType": _TARGETS.get(request.market, request.capacity_type),
            "TotalTargetCapacity": len(group.members),
        },
        "TagSpecifications": [{"ResourceType": kind, "Tags": as_list(_tags(group))} for kind in _TAGGED],
    }
    found |= _strategy(request)
    return found | ({"Context": request.context} if request.context else {})


def _strategy(request: LaunchRequest) -> dict[str, Any]:
    """How EC2 is to choose; a capacity block leaves nothing to choose."""
    if request.capacity_type == labels.SPOT:
        strategy = "capacity-optimized-prioritized" if request.prioritized else "price-capacity-optimized"
        return {"SpotOptions": {"AllocationStrategy": strategy}}
    if request.market == "capacity-block":
        return {}
    if request.market == "interruptible":
        return {"ReservedCapacityOptions": {"ReservationTypes": ["interruptible-capacity-reservation"]}}
    return {"OnDemandOptions": {"AllocationStrategy": "prioritized" if request.prioritized else "lowest-price"}}


def fleet_answer(group: LaunchGroup, raw: Mapping[str, Any]) -> FleetAnswer:
    """Instances in the order of the answer, the most telling error first.

    An answer that is short of both instances and reasons says so."""
    instances = tuple(
        _instance(group.request, item, instance_id)
        for item in raw.get("Instances") or ()
        for instance_id in item.get("InstanceIds") or ()
    )
    errors = sorted(
        (_error(group.request, item) for item in raw.get("Errors") or ()), key=lambda one: rank(one.code, one.message)
    )
    if len(instances) < len(group.members) and not errors:
        errors = [refusal(UNFULFILLABLE, "too few instances returned", group.request.capacity_type)]
    return FleetAnswer(instances=instances, errors=tuple(errors))


def refusal(code: str, message: str, capacity_type: str, **place: str) -> FleetError:
    """A FleetError, classified."""
    return FleetError(
        code=code,
        message=message,
        capacity_type=labels.SPOT if code in SERVICE_LINKED_ROLE else capacity_type,
        insufficient=code in INSUFFICIENT or SPREAD_GROUP_FULL in message,
        reason=create_error_reason(code, message),
        mend=how_to_mend(code, message),
        scope=_scope(code, message),
        **place,
    )


def _scope(code: str, message: str) -> Literal["offering", "capacity type", "subnet", "placement group"]:
    if code in SERVICE_LINKED_ROLE:
        return "capacity type"
    if code in SUBNET_FULL:
        return "subnet"
    return "placement group" if SPREAD_GROUP_FULL in message else "offering"


def _configs(request: LaunchRequest) -> list[dict[str, Any]]:
    by_template: dict[str, list[dict[str, Any]]] = {}
    for one in request.overrides:
        by_template.setdefault(one.launch_template, []).append(_override(one))
    return [
        {
            "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "$Latest"},
            "Overrides": overrides,
        }
        for name, overrides in by_template.items()
    ]


def _override(one: LaunchOverride) -> dict[str, Any]:
    return {
        "InstanceType": one.instance_type,
        "SubnetId": one.subnet_id,
        "ImageId": one.image_id,
        "AvailabilityZone": one.zone,
        "Priority": one.priority,
    }


def _tags(group: LaunchGroup) -> dict[str, str]:
    """The token finds instances whose answer was lost; a claim that is alone is named."""
    tags = {**group.request.tags, TAG_LAUNCH_GROUP: group.group_id, TAG_LAUNCH_TOKEN: group.token()}
    if len(group.members) == 1:
        tags[labels.TAG_NODECLAIM] = group.members[0].name
    return tags


def _instance(request: LaunchRequest, item: Mapping[str, Any], instance_id: str) -> FleetInstance:
    chosen = _chosen(item)
    known = _override_of(request, chosen)
    return FleetInstance(
        instance_id=instance_id,
        instance_type=item.get("InstanceType") or chosen.get("InstanceType", ""),
        zone=chosen.get("AvailabilityZone") or (known.zone if known else ""),
        subnet_id=chosen.get("SubnetId", ""),
        image_id=chosen.get("ImageId") or (known.image_id if known else ""),
        capacity_type=labels.SPOT if item.get("Lifecycle") == "spot" else request.capacity_type,
        reservation_id=known.reservation_id if known else "",
        market=request.market,
        placement_group=request.placement_group,
        partition=request.partition,
        instance_profile=request.instance_profile,
        node_class_stamp=request.node_class_stamp,
    )


def _error(request: LaunchRequest, item: Mapping[str, Any]) -> FleetError:
    chosen = _chosen(item)
    known = _override_of(request, chosen)
    return refusal(
        item.get("ErrorCode", ""),
        item.get("ErrorMessage", ""),
        labels.SPOT if item.get("Lifecycle") == "spot" else request.capacity_type,
        instance_type=chosen.get("InstanceType", ""),
        zone=chosen.get("AvailabilityZone") or (known.zone if known else ""),
        subnet_id=chosen.get("SubnetId", ""),
        reservation_id=known.reservation_id if known else "",
        placement_group=request.placement_group,
        partition=request.partition,
    )


def _chosen(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return (item.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}


def _override_of(request: LaunchRequest, chosen: Mapping[str, Any]) -> LaunchOverride | None:
    """Our own words for what EC2 chose, in case it does not repeat them all."""
    subnet, name = chosen.get("SubnetId"), chosen.get("InstanceType")
    return next((one for one in request.overrides if one.subnet_id == subnet and one.instance_type == name), None)
