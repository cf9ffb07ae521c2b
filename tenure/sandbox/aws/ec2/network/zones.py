"""Look up the references of launch data: subnet, image, security groups, instance profile. Errors have EC2's codes."""

from __future__ import annotations

from typing import Any

from tenure.sandbox.aws.ec2.call import not_found, require_well_formed
from tenure.sandbox.aws.ec2.records import Image
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.state.instance_profiles import profile_at, profile_named
from tenure.sandbox.aws.wire.responses import AwsError, bad_combination, invalid_value, missing_parameter


def subnet_of(environment: Environment, data: dict[str, Any]) -> Any:
    """The subnet of the launch, of its first interface, or the default subnet of its zone."""
    interfaces = data.get("NetworkInterfaces") or [{}]
    subnet_id = data.get("SubnetId") or interfaces[0].get("SubnetId")
    zone = data.get("AvailabilityZone") or data.get("Placement", {}).get("AvailabilityZone")
    if not subnet_id:
        subnet = environment.network.default_subnet(zone)
        if subnet is None:
            raise AwsError("MissingInput", "No subnets found for the default VPC. Please specify a subnet.")
        return subnet
    require_well_formed([subnet_id], "subnet")
    subnet = environment.network.subnet(subnet_id)
    if subnet is None:
        raise not_found([subnet_id], "subnet", "subnet")
    if zone and subnet.availability_zone != zone:
        raise AwsError(
            "InvalidFleetConfiguration",
            f"The subnet {subnet_id} is in the Availability Zone {subnet.availability_zone}, not in {zone}.",
        )
    return subnet


def image_of(environment: Environment, data: dict[str, Any]) -> Image:
    image_id = data.get("ImageId")
    if not image_id:
        raise missing_parameter("ImageId")
    require_well_formed([image_id], "ami")
    image = environment.images.get(image_id)
    if image is None:
        raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
    if not may_use(environment, image):
        raise AwsError("AuthFailure", f"Not authorized for images: [{image_id}]")
    if image.state != "available":
        raise AwsError("InvalidAMIID.Unavailable", f"The image ID '{image_id}' is not available")
    return image


def may_use(environment: Environment, image: Image) -> bool:
    return image.public or image.owner == environment.account


def groups_of(environment: Environment, data: dict[str, Any], subnet: Any) -> list[tuple[str, str]]:
    """(ID, name) of the groups of the first interface, of the instance, or the default group of the VPC."""
    interfaces = data.get("NetworkInterfaces") or []
    own = [*data.get("SecurityGroupIds", ()), *data.get("SecurityGroups", ())]
    if interfaces and own:
        raise bad_combination(
            "Network interfaces and an instance-level security groups may not be specified on the same request"
        )
    ids = interfaces[0].get("Groups", []) if interfaces else data.get("SecurityGroupIds", [])
    groups = [_find_security_group(environment, group_id, subnet) for group_id in ids]
    groups += [_named_group(environment, name, subnet) for name in data.get("SecurityGroups", ())]
    if not groups:
        groups = [_named_group(environment, "default", subnet)]
    return [(group.id, group.name) for group in groups]


def profile_of(environment: Environment, reference: dict[str, str] | None) -> tuple[str, str] | None:
    """(ARN, ID) of the instance profile. Raises InvalidParameterValue with the text that clients match."""
    if not reference:
        return None
    name, arn = reference.get("Name"), reference.get("Arn")
    profile = profile_named(environment.account, name) if name else profile_at(environment.account, arn or "")
    if profile is not None and environment.profiles_from.get(profile.name, 0.0) > environment.clock.now():
        profile = None
    if profile is not None and not profile.roles:
        raise invalid_value(f'IAM Instance Profile "{profile.arn}" has no associated IAM Roles')
    if profile is not None:
        return profile.arn, profile.id
    raise invalid_value(
        f"Value ({name or arn}) for parameter iamInstanceProfile.{'name' if name else 'arn'} is invalid. "
        f"Invalid IAM Instance Profile {'name' if name else 'ARN'}"
    )


def _find_security_group(environment: Environment, group_id: str, subnet: Any) -> Any:
    group = environment.network.group(group_id)
    if group is None:
        raise AwsError("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
    if group.vpc_id != subnet.vpc_id:
        raise AwsError(
            "InvalidParameter", f"Security group {group_id} and subnet {subnet.id} belong to different networks."
        )
    return group


def _named_group(environment: Environment, name: str, subnet: Any) -> Any:
    group = environment.network.group_named(name, subnet.vpc_id)
    if group is None:
        raise AwsError("InvalidGroup.NotFound", f"The security group '{name}' does not exist in VPC '{subnet.vpc_id}'")
    return group
