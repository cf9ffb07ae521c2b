"""Create instances from launch data: validate references, choose a zone, take capacity, and start in `pending`.

`prepare_launch` does the common part for all instances of one pool and raises request errors. `launch_one` takes
capacity and addresses and raises capacity errors. Fleets and RunInstances both use them.

A client token with the same request returns the first response; with another request it is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tenure.sandbox.aws.ec2.call import check_user_data, new_id, new_spot_request_id
from tenure.sandbox.aws.ec2.catalog.instance_types import (
    all_types,
    architectures,
    interface_slots,
    offered_zones,
    vcpus,
)
from tenure.sandbox.aws.ec2.fleet.capacity import require_quota
from tenure.sandbox.aws.ec2.instances.volumes_and_interfaces import (
    full_subnet,
    make_interfaces,
    make_volumes,
    plan_mappings,
)
from tenure.sandbox.aws.ec2.network.placement_groups import check_group, enter_group, group_of
from tenure.sandbox.aws.ec2.network.zones import groups_of, image_of, profile_of, subnet_of
from tenure.sandbox.aws.ec2.records import Image, Instance, PlacementGroup
from tenure.sandbox.aws.ec2.reservations.actions import ReservationCriteria, choose_reservation
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.services.sqs import is_usable
from tenure.sandbox.aws.wire.responses import AwsError, invalid_value

Tags = dict[str, dict[str, str]]


@dataclass(frozen=True)
class LaunchSpec:
    """Launch-template data merged with the override; `market` is on-demand, spot, or one of the reserved kinds."""

    data: dict[str, Any]
    market: str
    tags: Tags
    fleet_id: str | None = None
    client_token: str = ""


@dataclass(frozen=True)
class PreparedLaunch:
    spec: LaunchSpec
    instance_type: str
    image: Image
    subnet: Any
    groups: list[tuple[str, str]]
    profile: tuple[str, str] | None
    mappings: list[dict[str, Any]]
    reservation_id: str
    placement_group: PlacementGroup | None = None

    @property
    def zone(self) -> str:
        return str(self.subnet.availability_zone)

    @property
    def criteria(self) -> ReservationCriteria:
        tenancy = self.spec.data.get("Placement", {}).get("Tenancy") or "default"
        return ReservationCriteria(
            self.instance_type, self.zone, tenancy, "Windows" if self.image.platform else "Linux/UNIX"
        )


def prepare_launch(environment: Environment, spec: LaunchSpec) -> PreparedLaunch:
    """Raises AwsError with EC2's code for missing, malformed or inconsistent data."""
    data = spec.data
    check_user_data(data.get("UserData"))
    if spec.market == "spot" and not environment.settings.spot_service_linked_role:
        raise no_spot_role()
    instance_type = data.get("InstanceType") or "m1.small"
    if instance_type not in all_types():
        raise invalid_value(f"Invalid value '{instance_type}' for InstanceType.")
    subnet = subnet_of(environment, data)
    _require_offered(environment, instance_type, subnet.availability_zone)
    image = image_of(environment, data)
    placement = data.get("Placement", {})
    placement_group = group_of(environment, placement)
    check_group(placement_group, placement, instance_type)
    _require_same_architecture(instance_type, image)
    return PreparedLaunch(
        spec=spec,
        instance_type=instance_type,
        image=image,
        subnet=subnet,
        groups=groups_of(environment, data, subnet),
        profile=profile_of(environment, data.get("IamInstanceProfile")),
        mappings=plan_mappings(image, data.get("BlockDeviceMappings")),
        reservation_id=new_id("r"),
        placement_group=placement_group,
    )


def launch_one(environment: Environment, prepared: PreparedLaunch, index: int) -> Instance:
    """Raises a capacity error (no capacity, limit, full subnet, full reservation) without taking anything."""
    spec = prepared.spec
    reservation = choose_reservation(
        environment,
        prepared.criteria,
        market=spec.market,
        specification=spec.data.get("CapacityReservationSpecification"),
    )
    require_quota(environment, prepared.instance_type, spec.market, vcpus(prepared.instance_type))
    if environment.network.address_pool(prepared.subnet.id).free_count() < 1:
        raise full_subnet(prepared.subnet.id)
    partition = _choose_partition(environment, prepared)
    pools = None if reservation else _take_capacity(environment, prepared)
    instance = _build(environment, prepared, index)
    instance.partition = partition
    if not all(is_usable(environment.account, environment.region, key) for key in _keys(prepared)):
        instance.failure = ("Client.InternalError", "Client error on launch")
    instance.pools = pools or []
    if reservation is not None:
        instance.capacity_reservation_id = reservation.id
        reservation.used += 1
    environment.instances[instance.id] = instance
    environment.launched += 1
    environment.enter_state(instance, "pending")
    return instance


def _keys(prepared: PreparedLaunch) -> list[str]:
    """The encryption keys of its volumes. EC2 checks them only after its response."""
    return [mapping["Ebs"]["KmsKeyId"] for mapping in prepared.mappings if mapping["Ebs"].get("KmsKeyId")]


def _choose_partition(environment: Environment, prepared: PreparedLaunch) -> int | None:
    group = prepared.placement_group
    if group is None:
        return None
    return enter_group(environment, group, prepared.zone, prepared.spec.data["Placement"].get("PartitionNumber"))


def _take_capacity(environment: Environment, prepared: PreparedLaunch) -> list[tuple[str, str, str]]:
    usage = "spot" if prepared.spec.market == "spot" else "on-demand"
    key = (prepared.instance_type, prepared.zone, usage)
    pools = environment.pools.consume(key)
    if pools is None:
        own = environment.pools.error_when_empty(key)
        raise AwsError(*own) if own else no_capacity(prepared.instance_type, prepared.zone, spot=usage == "spot")
    return pools


def no_spot_role() -> AwsError:
    return AwsError(
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
        403,
    )


def no_capacity(instance_type: str, zone: str, *, spot: bool) -> AwsError:
    if spot:
        text = "There is no Spot capacity available that matches your request."
    else:
        text = (
            f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested "
            f"({zone}). Our system will be working on provisioning additional capacity."
        )
    return AwsError("InsufficientInstanceCapacity", text)


def _require_offered(environment: Environment, instance_type: str, zone: str) -> None:
    zones = offered_zones(environment.region).get(instance_type, frozenset())
    if zone not in zones:
        hint = f" or choosing {', '.join(sorted(zones))}" if zones else ""
        raise AwsError(
            "Unsupported",
            f"Your requested instance type ({instance_type}) is not supported in your requested Availability Zone "
            f"({zone}). Please retry your request by not specifying an Availability Zone{hint}.",
        )


def _require_same_architecture(instance_type: str, image: Image) -> None:
    supported = architectures(instance_type)
    if image.architecture not in supported:
        raise invalid_value(
            f"The architecture '{','.join(supported)}' of the specified instance type does not match the architecture "
            f"'{image.architecture}' of the specified AMI. Specify an instance type and an AMI that have matching "
            "architectures, and try again."
        )


def _build(environment: Environment, prepared: PreparedLaunch, index: int) -> Instance:
    spec, data, subnet, group = prepared.spec, prepared.spec.data, prepared.subnet, prepared.placement_group
    interfaces = make_interfaces(
        data.get("NetworkInterfaces") or [],
        address_pool=environment.network.address_pool(subnet.id),
        subnet_id=subnet.id,
        groups=prepared.groups,
        public=str(subnet.map_public_ip_on_launch).lower() == "true",
        tags=spec.tags.get("network-interface", {}),
        slots=interface_slots(prepared.instance_type),
    )
    environment.sequence += 1
    return Instance(
        id=new_id("i"),
        sequence=environment.sequence,
        reservation_id=prepared.reservation_id,
        launch_index=index,
        instance_type=prepared.instance_type,
        image_id=prepared.image.id,
        architecture=prepared.image.architecture,
        root_device=prepared.image.root_device,
        platform=prepared.image.platform,
        image_name=prepared.image.name,
        zone=prepared.zone,
        zone_id=subnet.availability_zone_id,
        subnet_id=subnet.id,
        vpc_id=subnet.vpc_id,
        private_ip=interfaces[0].private_ip or "",
        lifecycle=spec.market,
        client_token=spec.client_token,
        launch_time=environment.now().replace(microsecond=0),
        data=data,
        tags=dict(spec.tags.get("instance", {})),
        groups=prepared.groups,
        interfaces=interfaces,
        volumes=make_volumes(prepared.mappings, spec.tags.get("volume", {})),
        profile=prepared.profile,
        group_id=group.id if group else None,
        group_name=group.name if group else "",
        fleet_id=spec.fleet_id,
        spot_request_id=new_spot_request_id() if spec.market == "spot" else None,
        vcpus=vcpus(prepared.instance_type),
        visible_at=environment.clock.now() + environment.settings.visibility_seconds,
    )


T = TypeVar("T")


def perform_once(environment: Environment, action: str, request: dict[str, Any], perform: Callable[[], T]) -> T:
    """Perform, or return the stored response. Failures are not stored. Raises IdempotentParameterMismatch."""
    token = request.get("ClientToken")
    if not token:
        return perform()
    digest = json.dumps({k: v for k, v in request.items() if k not in ("ClientToken", "DryRun")}, sort_keys=True)
    known = environment.tokens.get((action, token))
    if known is None:
        result = perform()
        environment.tokens[action, token] = (digest, result)
        return result
    if known[0] != digest:
        raise AwsError(
            "IdempotentParameterMismatch",
            "The request uses the same client token as a previous, but non-identical request.",
        )
    stored: T = known[1]
    return stored
