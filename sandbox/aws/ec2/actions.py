"""The table of EC2 actions that are ours. What is not in it goes to moto."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox.aws.ec2 import (
    attachments,
    fleet,
    fleets,
    images,
    instance_attributes,
    instance_status,
    instance_types,
    instances,
    launch_templates,
    placement_groups,
    reservations,
    run_instances,
    spot_history,
    subnets,
    tags,
)
from sandbox.aws.ec2.call import Call

Handler = Callable[[Call], dict[str, Any] | bytes]

ACTIONS: dict[str, Handler] = {
    "CreateFleet": fleet.create_fleet,
    "RunInstances": run_instances.run_instances,
    "DescribeInstances": instances.describe_instances,
    "DescribeInstanceAttribute": instance_attributes.describe_instance_attribute,
    "ModifyInstanceAttribute": instance_attributes.modify_instance_attribute,
    "TerminateInstances": instances.terminate_instances,
    "StopInstances": instances.stop_instances,
    "StartInstances": instances.start_instances,
    "RebootInstances": instances.reboot_instances,
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
    "DescribeSpotPriceHistory": spot_history.describe_spot_price_history,
    "DescribeInstanceStatus": instance_status.describe_instance_status,
    "CreateCapacityReservation": reservations.create_capacity_reservation,
    "DescribeCapacityReservations": reservations.describe_capacity_reservations,
    "ModifyCapacityReservation": reservations.modify_capacity_reservation,
    "CancelCapacityReservation": reservations.cancel_capacity_reservation,
    "CreatePlacementGroup": placement_groups.create_placement_group,
    "DescribePlacementGroups": placement_groups.describe_placement_groups,
    "DeletePlacementGroup": placement_groups.delete_placement_group,
    "DescribeVolumes": attachments.describe_volumes,
    "DescribeNetworkInterfaces": attachments.describe_network_interfaces,
    "DescribeSpotInstanceRequests": attachments.describe_spot_instance_requests,
    "DescribeFleets": fleets.describe_fleets,
    "DeleteFleets": fleets.delete_fleets,
    "CreateTags": tags.create_tags,
    "DeleteTags": tags.delete_tags,
    "DescribeTags": tags.describe_tags,
}
