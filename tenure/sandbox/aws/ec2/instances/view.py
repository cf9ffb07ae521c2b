"""Instances in the format of DescribeInstances.

The XML is cached on the instance until it changes, so that listing a thousand instances only joins strings.
"""

from __future__ import annotations

from typing import Any

from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.aws.ec2.network.placement_groups import visible_partition
from tenure.sandbox.aws.ec2.records import STATE_CODES, Instance, NetworkInterface
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.ec2.tags import tag_list
from tenure.sandbox.aws.wire.xml import Raw, named_shape

METADATA_DEFAULTS = {
    "State": "applied",
    "HttpTokens": "optional",
    "HttpPutResponseHopLimit": 1,
    "HttpEndpoint": "enabled",
    "HttpProtocolIpv6": "disabled",
    "InstanceMetadataTags": "disabled",
}
OPERATOR = {"Managed": False}
# On-demand instances have no InstanceLifecycle.
LIFECYCLES = frozenset({"spot", "capacity-block", "interruptible-capacity-reservation"})


def instance_xml(environment: Environment, instance: Instance) -> Raw:
    if instance.view is None:
        instance.view = named_shape("Instance", instance_view(environment, instance))
    return Raw(instance.view)


def dns_name(environment: Environment, address: str) -> str:
    if not address:
        return ""
    domain = "ec2.internal" if environment.region == "us-east-1" else f"{environment.region}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{domain}"


def instance_view(environment: Environment, instance: Instance) -> dict[str, Any]:
    """The instance with the member names of DescribeInstances. A terminated instance has no network data."""
    view = {
        **_identity_view(instance),
        **_hardware_view(instance),
        **_options_view(instance),
        "Tags": tag_list(instance.tags),
    }
    if instance.state != "terminated":
        view |= _network_view(environment, instance) | _disks_view(instance)
        if instance.profile:
            view["IamInstanceProfile"] = {"Arn": instance.profile[0], "Id": instance.profile[1]}
    else:
        view |= {"PrivateDnsName": "", "SecurityGroups": [], "NetworkInterfaces": [], "BlockDeviceMappings": []}
    if instance.reason_code:
        view["StateReason"] = {"Code": instance.reason_code, "Message": instance.reason_message}
    return view


def _identity_view(instance: Instance) -> dict[str, Any]:
    return {
        "InstanceId": instance.id,
        "ImageId": instance.image_id,
        "InstanceType": instance.instance_type,
        "State": state_of(instance),
        "StateTransitionReason": instance.reason,
        "KeyName": instance.data.get("KeyName"),
        "AmiLaunchIndex": instance.launch_index,
        "ProductCodes": [],
        "LaunchTime": instance.launch_time,
        "ClientToken": instance.client_token,
        "InstanceLifecycle": instance.lifecycle if instance.lifecycle in LIFECYCLES else None,
        "SpotInstanceRequestId": instance.spot_request_id,
        "Platform": instance.platform,
        "PlatformDetails": "Windows" if instance.platform else "Linux/UNIX",
        "UsageOperation": "RunInstances:0002" if instance.platform else "RunInstances",
        "UsageOperationUpdateTime": instance.launch_time,
        "Operator": OPERATOR,
    }


def state_of(instance: Instance) -> dict[str, Any]:
    return {"Code": STATE_CODES[instance.state], "Name": instance.state}


def _hardware_view(instance: Instance) -> dict[str, Any]:
    facts = all_types()[instance.instance_type]
    placement = instance.data.get("Placement", {})
    cpu = {
        "CoreCount": facts["VCpuInfo"].get("DefaultCores", 1),
        "ThreadsPerCore": facts["VCpuInfo"].get("DefaultThreadsPerCore", 1),
    }
    return {
        "Placement": {
            "AvailabilityZone": instance.zone,
            "AvailabilityZoneId": instance.zone_id,
            "GroupName": instance.group_name,
            "GroupId": instance.group_id,
            "PartitionNumber": visible_partition(instance),
            "Tenancy": placement.get("Tenancy") or "default",
        },
        "Architecture": instance.architecture,
        "Hypervisor": "xen",
        "VirtualizationType": "hvm",
        "RootDeviceType": "ebs",
        "RootDeviceName": instance.root_device,
        "EbsOptimized": bool(instance.data.get("EbsOptimized", False)),
        "EnaSupport": True,
        "CpuOptions": {**cpu, **instance.data.get("CpuOptions", {})},
        "BootMode": "uefi-preferred" if instance.architecture == "x86_64" else "uefi",
        "CurrentInstanceBootMode": "uefi" if instance.architecture == "arm64" else "legacy-bios",
    }


def _options_view(instance: Instance) -> dict[str, Any]:
    data = instance.data
    monitored = data.get("Monitoring", {}).get("Enabled")
    reservation_specification = data.get("CapacityReservationSpecification") or {
        "CapacityReservationPreference": "open"
    }
    return {
        "Monitoring": {"State": "enabled" if monitored else "disabled"},
        "MetadataOptions": {**METADATA_DEFAULTS, **data.get("MetadataOptions", {})},
        "EnclaveOptions": {"Enabled": bool(data.get("EnclaveOptions", {}).get("Enabled"))},
        "HibernationOptions": {"Configured": bool(data.get("HibernationOptions", {}).get("Configured"))},
        "MaintenanceOptions": {"AutoRecovery": "default", "RebootMigration": "default"},
        "CapacityReservationId": instance.capacity_reservation_id,
        "CapacityReservationSpecification": reservation_specification,
    }


def _network_view(environment: Environment, instance: Instance) -> dict[str, Any]:
    public = next((i.public_ip for i in instance.interfaces if i.public_ip), None)
    return {
        "SubnetId": instance.subnet_id,
        "VpcId": instance.vpc_id,
        "PrivateIpAddress": instance.private_ip,
        "PrivateDnsName": dns_name(environment, instance.private_ip),
        "PublicDnsName": _public_dns(environment, public),
        "PublicIpAddress": public,
        "Ipv6Address": next((one for i in instance.interfaces for one in i.ipv6), None),
        "SourceDestCheck": True,
        "SecurityGroups": _groups_view(instance.groups),
        "NetworkInterfaces": [interface_view(environment, instance, i) for i in instance.interfaces],
        "PrivateDnsNameOptions": {
            "HostnameType": "ip-name",
            "EnableResourceNameDnsARecord": False,
            "EnableResourceNameDnsAAAARecord": False,
        },
    }


def _public_dns(environment: Environment, address: str | None) -> str:
    return f"ec2-{address.replace('.', '-')}.{environment.region}.compute.amazonaws.com" if address else ""


def _groups_view(groups: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"GroupId": group_id, "GroupName": name} for group_id, name in groups]


def interface_view(environment: Environment, instance: Instance, interface: NetworkInterface) -> dict[str, Any]:
    """An interface in the view of its instance."""
    address = interface.private_ip
    addresses = [] if address is None else [
        {"Primary": True, "PrivateDnsName": dns_name(environment, address), "PrivateIpAddress": address}
    ]  # fmt: skip
    public = None
    if interface.public_ip:
        public = {
            "IpOwnerId": "amazon",
            "PublicDnsName": _public_dns(environment, interface.public_ip),
            "PublicIp": interface.public_ip,
        }
    return {
        "NetworkInterfaceId": interface.id,
        "SubnetId": instance.subnet_id,
        "VpcId": instance.vpc_id,
        "Description": interface.description,
        "OwnerId": environment.account,
        "Status": "in-use",
        "MacAddress": interface.mac,
        "PrivateIpAddress": address,
        "PrivateDnsName": dns_name(environment, address or ""),
        "SourceDestCheck": True,
        "InterfaceType": interface.interface_type,
        "Groups": _groups_view(interface.groups),
        "Attachment": {
            "AttachmentId": interface.attachment_id,
            "DeviceIndex": interface.device_index,
            "NetworkCardIndex": interface.card_index,
            "Status": "attaching" if instance.state == "pending" else "attached",
            "AttachTime": instance.launch_time,
            "DeleteOnTermination": True,
        },
        "Association": public,
        "PrivateIpAddresses": addresses,
        "Ipv4Prefixes": [{"Ipv4Prefix": prefix} for prefix in interface.ipv4_prefixes] or None,
        "Ipv6Addresses": [
            {"Ipv6Address": one, "IsPrimaryIpv6": number == 0} for number, one in enumerate(interface.ipv6)
        ],
        "Ipv6Prefixes": [{"Ipv6Prefix": prefix} for prefix in interface.ipv6_prefixes] or None,
        "Operator": OPERATOR,
    }


def _disks_view(instance: Instance) -> dict[str, Any]:
    return {
        "BlockDeviceMappings": [
            {
                "DeviceName": volume.device,
                "Ebs": {
                    "VolumeId": volume.id,
                    "Status": "attaching" if instance.state == "pending" else "attached",
                    "AttachTime": instance.launch_time,
                    "DeleteOnTermination": volume.delete_on_termination,
                },
            }
            for volume in instance.volumes
        ]
    }
