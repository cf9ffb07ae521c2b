"""CreateFleet for a launch group: the request with the group's client token, the call, and the parsed result.

The request depends only on the group, so that a retry is identical. A rejected call is a result. A fault is raised only
if instances may have been launched; then the caller repeats the same call.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from tenure.apis import labels
from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import (
    INSUFFICIENT,
    LAUNCH_TEMPLATE_NOT_FOUND,
    SERVICE_LINKED_ROLE,
    SUBNET_FULL,
    TOKEN_MISMATCH,
)
from tenure.aws.instance.instances import AwsInstances
from tenure.aws.instance.launch_errors import SPREAD_GROUP_FULL, create_error_reason, error_rank, error_remedy
from tenure.aws.instance.launch_templates import LaunchTemplates
from tenure.aws.instancetype.capacity_reservations import ReservationCounts
from tenure.aws.instancetype.unavailable_offerings import UnavailableOfferings
from tenure.aws.nodeclass.subnets_and_security_groups import FreeAddresses
from tenure.aws.tags import LAUNCH_TAGGED, TAG_LAUNCH_TOKEN, instance_tags, tag_specifications
from tenure.clock import utc_now
from tenure.model.errors import BadInput, Fault, Forbidden, NotFound, Throttled
from tenure.model.launch import (
    FleetError,
    FleetInstance,
    FleetResult,
    LaunchGroup,
    LaunchOverride,
    LaunchRequest,
    list_unavailable_offerings,
)
from tenure.model.provider_results import InstanceFacts

_TARGETS: Final[dict[str, str]] = {
    "default": "on-demand",
    "capacity-block": "capacity-block",
    "interruptible": "reserved-capacity",
}
"""Target capacity type of reserved capacity, by kind of reservation."""
UNFULFILLABLE: Final = "UnfulfillableCapacity"


def create_fleet_request(group: LaunchGroup) -> dict[str, Any]:
    request = group.request
    found: dict[str, Any] = {
        "Type": "instant",
        "ClientToken": group.client_token(),
        "LaunchTemplateConfigs": _launch_template_configs(request),
        "TargetCapacitySpecification": {
            "DefaultTargetCapacityType": _TARGETS.get(request.market, request.capacity_type),
            "TotalTargetCapacity": len(group.members),
        },
        "TagSpecifications": tag_specifications(LAUNCH_TAGGED, _instance_tags(group)),
    }
    found |= _allocation_options(request)
    return found | ({"Context": request.context} if request.context else {})


def _allocation_options(request: LaunchRequest) -> dict[str, Any]:
    """Allocation strategy; a capacity block has a single offering and needs none."""
    if request.capacity_type == labels.SPOT:
        strategy = "capacity-optimized-prioritized" if request.prioritized else "price-capacity-optimized"
        return {"SpotOptions": {"AllocationStrategy": strategy}}
    if request.market == "capacity-block":
        return {}
    if request.market == "interruptible":
        return {"ReservedCapacityOptions": {"ReservationTypes": ["interruptible-capacity-reservation"]}}
    return {"OnDemandOptions": {"AllocationStrategy": "prioritized" if request.prioritized else "lowest-price"}}


def parse_fleet_result(group: LaunchGroup, raw: Mapping[str, Any]) -> FleetResult:
    """Instances in the order of the response, and errors, most specific first.

    A response with too few instances and without errors gets an UnfulfillableCapacity error.
    """
    instances = tuple(
        _parse_instance(group.request, item, instance_id)
        for item in raw.get("Instances") or ()
        for instance_id in item.get("InstanceIds") or ()
    )
    errors = sorted(
        (_parse_error(group.request, item) for item in raw.get("Errors") or ()),
        key=lambda one: error_rank(one.code, one.message),
    )
    if len(instances) < len(group.members) and not errors:
        errors = [classify_fleet_error(UNFULFILLABLE, "too few instances returned", group.request.capacity_type)]
    return FleetResult(instances=instances, errors=tuple(errors))


def classify_fleet_error(code: str, message: str, capacity_type: str, **location: str) -> FleetError:
    return FleetError(
        code=code,
        message=message,
        capacity_type=labels.SPOT if code in SERVICE_LINKED_ROLE else capacity_type,
        insufficient=code in INSUFFICIENT or SPREAD_GROUP_FULL in message,
        reason=create_error_reason(code, message),
        remedy=error_remedy(code, message),
        scope=_error_scope(code, message),
        **location,
    )


def _error_scope(code: str, message: str) -> Literal["offering", "capacity type", "subnet", "placement group"]:
    if code in SERVICE_LINKED_ROLE:
        return "capacity type"
    if code in SUBNET_FULL:
        return "subnet"
    return "placement group" if SPREAD_GROUP_FULL in message else "offering"


def _launch_template_configs(request: LaunchRequest) -> list[dict[str, Any]]:
    by_template: dict[str, list[dict[str, Any]]] = {}
    for one in request.overrides:
        by_template.setdefault(one.launch_template, []).append(_override_request(one))
    return [
        {"LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "$Latest"}, "Overrides": overrides}
        for name, overrides in by_template.items()
    ]


def _override_request(one: LaunchOverride) -> dict[str, Any]:
    return {
        "InstanceType": one.instance_type,
        "SubnetId": one.subnet_id,
        "ImageId": one.image_id,
        "AvailabilityZone": one.zone,
        "Priority": one.priority,
    }


def _instance_tags(group: LaunchGroup) -> dict[str, str]:
    nodeclaim = group.members[0].name if len(group.members) == 1 else ""
    return instance_tags(group.request.tags, group.group_id, group.client_token(), nodeclaim)


def _parse_instance(request: LaunchRequest, item: Mapping[str, Any], instance_id: str) -> FleetInstance:
    chosen = _chosen_override(item)
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


def _parse_error(request: LaunchRequest, item: Mapping[str, Any]) -> FleetError:
    chosen = _chosen_override(item)
    known = _override_of(request, chosen)
    return classify_fleet_error(
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


def _chosen_override(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return (item.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}


def _override_of(request: LaunchRequest, chosen: Mapping[str, Any]) -> LaunchOverride | None:
    """The override that EC2 chose. Its fields complete the response, which may omit some."""
    subnet, name = chosen.get("SubnetId"), chosen.get("InstanceType")
    return next((one for one in request.overrides if one.subnet_id == subnet and one.instance_type == name), None)


_REJECTIONS = (Forbidden, BadInput, NotFound)
"""EC2 rejected the call, which launched no instances."""
_MAX_ATTEMPTS: Final = 5


class FleetCalls:
    """Raises model.faults."""

    def __init__(
        self,
        clients: AwsClients,
        *,
        templates: LaunchTemplates,
        instances: AwsInstances,
        unavailable: UnavailableOfferings,
        free: FreeAddresses,
        counts: ReservationCounts,
    ) -> None:
        self._clients, self._templates, self._instances = clients, templates, instances
        self._unavailable, self._free, self._counts = unavailable, free, counts

    async def create(self, group: LaunchGroup) -> FleetResult:
        """Launch the group. A rejected call returns the instances of an earlier call with this token, if any."""
        try:
            raw = await self._call_create_fleet(group)
        except Fault as fault:
            if fault.code not in INSUFFICIENT and not isinstance(fault, _REJECTIONS):
                raise
            result = await self._made_before(group) or _rejected_result(group, fault)
        else:
            result = parse_fleet_result(group, raw)
        self._record_result(group, result)
        return result

    async def find(self, group: LaunchGroup) -> FleetResult:
        """The pending and running instances with this token, by ID, after the response of the call was lost."""
        found = await self._instances.find_by_tag(TAG_LAUNCH_TOKEN, group.client_token())
        return FleetResult(instances=_fleet_instances(found, group))

    async def _call_create_fleet(self, group: LaunchGroup) -> Mapping[str, Any]:
        """Recreate missing launch templates if this process knows their content, and repeat the call once."""
        request = create_fleet_request(group)
        try:
            return await self._create_with_retries(request)
        except NotFound as fault:
            names = sorted({one.launch_template for one in group.request.overrides})
            if fault.code not in LAUNCH_TEMPLATE_NOT_FOUND or not await self._templates.recreate(names):
                raise
        return await self._create_with_retries(request)

    async def _create_with_retries(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Retry a throttled call here: after a fault it would wait at the end of a longer queue."""
        for _ in range(_MAX_ATTEMPTS - 1):
            try:
                return await self._clients.call(self._clients.ec2_without_retries.create_fleet, **request)
            except Throttled:
                continue
        return await self._clients.call(self._clients.ec2_without_retries.create_fleet, **request)

    async def _made_before(self, group: LaunchGroup) -> FleetResult | None:
        """The instances of an earlier call whose response was lost.

        A retry may be rejected although that call succeeded: permissions or templates may have changed since.
        """
        found = await self.find(group)
        return found if found.instances else None

    def _record_result(self, group: LaunchGroup, result: FleetResult) -> None:
        now = utc_now()
        self._unavailable.add(list_unavailable_offerings(result.errors, group.request.node_class, now), now)
        self._counts.record_launch_result(result)
        for instance in result.instances:
            self._free.record_launch(instance.subnet_id, 1)
        missing = {error.code for error in result.errors} & LAUNCH_TEMPLATE_NOT_FOUND
        if missing:
            self._templates.forget(one.launch_template for one in group.request.overrides)


def _rejected_result(group: LaunchGroup, fault: Fault) -> FleetResult:
    message = fault.message
    if fault.code in TOKEN_MISMATCH:
        message = f"{message} (token {group.client_token()} of {group.group_id})"
    return FleetResult(errors=(classify_fleet_error(fault.code, message, group.request.capacity_type),))


def _fleet_instances(found: Sequence[InstanceFacts], group: LaunchGroup) -> tuple[FleetInstance, ...]:
    return tuple(
        FleetInstance.model_validate(
            {
                **one.model_dump(include=set(FleetInstance.model_fields)),
                "market": one.market,
                "instance_profile": group.request.instance_profile,
                "node_class_stamp": group.request.node_class_stamp,
            }
        )
        for one in sorted(found, key=lambda one: one.instance_id)
    )
