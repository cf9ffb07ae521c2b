"""Values of an instance for the filters of DescribeInstances, cached until it changes."""

from __future__ import annotations

from typing import Any

from tenure.sandbox.aws.ec2.call import values_at
from tenure.sandbox.aws.ec2.filters import tag_facts
from tenure.sandbox.aws.ec2.instances.view import instance_view
from tenure.sandbox.aws.ec2.records import Instance
from tenure.sandbox.aws.ec2.state import Environment


def instance_facts(environment: Environment, instance: Instance) -> dict[str, list[str]]:
    """Values by filter name."""
    if instance.facts is None:
        instance.facts = _filter_facts(instance_view(environment, instance), instance)
    return instance.facts


PATHS = {
    "instance-id": "InstanceId",
    "image-id": "ImageId",
    "instance-type": "InstanceType",
    "instance-state-name": "State.Name",
    "instance-state-code": "State.Code",
    "instance-lifecycle": "InstanceLifecycle",
    "spot-instance-request-id": "SpotInstanceRequestId",
    "client-token": "ClientToken",
    "capacity-reservation-id": "CapacityReservationId",
    "capacity-reservation-specification.capacity-reservation-preference": (
        "CapacityReservationSpecification.CapacityReservationPreference"
    ),
    "capacity-reservation-specification.capacity-reservation-target.capacity-reservation-id": (
        "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"
    ),
    "availability-zone": "Placement.AvailabilityZone",
    "availability-zone-id": "Placement.AvailabilityZoneId",
    "placement-group-name": "Placement.GroupName",
    "placement-partition-number": "Placement.PartitionNumber",
    "tenancy": "Placement.Tenancy",
    "architecture": "Architecture",
    "hypervisor": "Hypervisor",
    "virtualization-type": "VirtualizationType",
    "root-device-name": "RootDeviceName",
    "root-device-type": "RootDeviceType",
    "subnet-id": "SubnetId",
    "vpc-id": "VpcId",
    "private-ip-address": "PrivateIpAddress",
    "ip-address": "PublicIpAddress",
    "private-dns-name": "PrivateDnsName",
    "dns-name": "PublicDnsName",
    "key-name": "KeyName",
    "launch-index": "AmiLaunchIndex",
    "launch-time": "LaunchTime",
    "monitoring-state": "Monitoring.State",
    "reason": "StateTransitionReason",
    "state-reason-code": "StateReason.Code",
    "source-dest-check": "SourceDestCheck",
    "platform": "Platform",
    "platform-details": "PlatformDetails",
    "usage-operation": "UsageOperation",
    "boot-mode": "BootMode",
    "current-instance-boot-mode": "CurrentInstanceBootMode",
    "ebs-optimized": "EbsOptimized",
    "enclave-options.enabled": "EnclaveOptions.Enabled",
    "hibernation-options.configured": "HibernationOptions.Configured",
    "iam-instance-profile.arn": "IamInstanceProfile.Arn",
    "iam-instance-profile.id": "IamInstanceProfile.Id",
    "instance.group-id": "SecurityGroups.GroupId",
    "instance.group-name": "SecurityGroups.GroupName",
    "group-id": "SecurityGroups.GroupId",
    "group-name": "SecurityGroups.GroupName",
    "maintenance-options.auto-recovery": "MaintenanceOptions.AutoRecovery",
    "metadata-options.http-tokens": "MetadataOptions.HttpTokens",
    "metadata-options.http-endpoint": "MetadataOptions.HttpEndpoint",
    "metadata-options.http-put-response-hop-limit": "MetadataOptions.HttpPutResponseHopLimit",
    "metadata-options.instance-metadata-tags": "MetadataOptions.InstanceMetadataTags",
    "block-device-mapping.device-name": "BlockDeviceMappings.DeviceName",
    "block-device-mapping.volume-id": "BlockDeviceMappings.Ebs.VolumeId",
    "block-device-mapping.status": "BlockDeviceMappings.Ebs.Status",
    "block-device-mapping.delete-on-termination": "BlockDeviceMappings.Ebs.DeleteOnTermination",
    "block-device-mapping.attach-time": "BlockDeviceMappings.Ebs.AttachTime",
    "network-interface.network-interface-id": "NetworkInterfaces.NetworkInterfaceId",
    "network-interface.subnet-id": "NetworkInterfaces.SubnetId",
    "network-interface.vpc-id": "NetworkInterfaces.VpcId",
    "network-interface.group-id": "NetworkInterfaces.Groups.GroupId",
    "network-interface.group-name": "NetworkInterfaces.Groups.GroupName",
    "network-interface.private-dns-name": "NetworkInterfaces.PrivateDnsName",
    "network-interface.mac-address": "NetworkInterfaces.MacAddress",
    "network-interface.status": "NetworkInterfaces.Status",
    "network-interface.description": "NetworkInterfaces.Description",
    "network-interface.owner-id": "NetworkInterfaces.OwnerId",
    "network-interface.addresses.private-ip-address": "NetworkInterfaces.PrivateIpAddresses.PrivateIpAddress",
    "network-interface.addresses.primary": "NetworkInterfaces.PrivateIpAddresses.Primary",
    "network-interface.attachment.attachment-id": "NetworkInterfaces.Attachment.AttachmentId",
    "network-interface.attachment.device-index": "NetworkInterfaces.Attachment.DeviceIndex",
    "network-interface.attachment.status": "NetworkInterfaces.Attachment.Status",
    "network-interface.attachment.instance-id": "InstanceId",
}
OTHER = frozenset({"tag-key", "tag-value", "owner-id", "reservation-id", "requester-id"})
INSTANCE_FILTERS = frozenset(PATHS) | OTHER


def _filter_facts(view: dict[str, Any], instance: Instance) -> dict[str, list[str]]:
    facts = {name: values_at(view, path) for name, path in PATHS.items()}
    facts |= tag_facts(instance.tags)
    owner = next((i["OwnerId"] for i in view["NetworkInterfaces"]), None)
    facts["owner-id"] = [owner] if owner else []
    facts["reservation-id"] = [instance.reservation_id]
    return facts
