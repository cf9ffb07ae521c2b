"""The EC2 actions that the stand-in implements. moto handles the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.sandbox.aws.ec2 import tags
from tenure.sandbox.aws.ec2.call import Call
from tenure.sandbox.aws.ec2.catalog import images, instance_types, prices
from tenure.sandbox.aws.ec2.fleet import create_fleet, launch_templates, run_instances
from tenure.sandbox.aws.ec2.instances import actions, attributes, status, volumes_and_interfaces
from tenure.sandbox.aws.ec2.network import placement_groups, subnets
from tenure.sandbox.aws.ec2.reservations import actions as reservations

Handler = Callable[[Call], dict[str, Any] | bytes]

ACTIONS: dict[str, Handler] = {
    "CreateFleet": create_fleet.create_fleet,
    "RunInstances": run_instances.run_instances,
    "DescribeInstances": actions.describe_instances,
    "DescribeInstanceAttribute": attributes.describe_instance_attribute,
    "ModifyInstanceAttribute": attributes.modify_instance_attribute,
    "TerminateInstances": actions.terminate_instances,
    "StopInstances": actions.stop_instances,
    "StartInstances": actions.start_instances,
    "RebootInstances": actions.reboot_instances,
    "CreateLaunchTemplate": launch_templates.create_launch_template,
    "CreateLaunchTemplateVersion": launch_templates.create_launch_template_version,
    "ModifyLaunchTemplate": launch_templates.modify_launch_template,
    "DescribeLaunchTemplates": launch_templates.describe_launch_templates,
    "DescribeLaunchTemplateVersions": launch_templates.describe_launch_template_versions,
    "DeleteLaunchTemplate": launch_templates.delete_launch_template,
    "DescribeImages": images.describe_images,
    "RegisterImage": images.register_image,
    "DeregisterImage": images.deregister_image,
    "EnableImageDeprecation": images.enable_image_deprecation,
    "DisableImageDeprecation": images.disable_image_deprecation,
    "DescribeInstanceTypes": instance_types.describe_instance_types,
    "DescribeInstanceTypeOfferings": instance_types.describe_instance_type_offerings,
    "DescribeSubnets": subnets.describe_subnets,
    "DescribeSpotPriceHistory": prices.describe_spot_price_history,
    "DescribeInstanceStatus": status.describe_instance_status,
    "CreateCapacityReservation": reservations.create_capacity_reservation,
    "DescribeCapacityReservations": reservations.describe_capacity_reservations,
    "ModifyCapacityReservation": reservations.modify_capacity_reservation,
    "CancelCapacityReservation": reservations.cancel_capacity_reservation,
    "CreatePlacementGroup": placement_groups.create_placement_group,
    "DescribePlacementGroups": placement_groups.describe_placement_groups,
    "DeletePlacementGroup": placement_groups.delete_placement_group,
    "DescribeVolumes": volumes_and_interfaces.describe_volumes,
    "DescribeNetworkInterfaces": volumes_and_interfaces.describe_network_interfaces,
    "DescribeSpotInstanceRequests": volumes_and_interfaces.describe_spot_instance_requests,
    "DescribeFleets": create_fleet.describe_fleets,
    "DeleteFleets": create_fleet.delete_fleets,
    "CreateTags": tags.create_tags,
    "DeleteTags": tags.delete_tags,
    "DescribeTags": tags.describe_tags,
}
