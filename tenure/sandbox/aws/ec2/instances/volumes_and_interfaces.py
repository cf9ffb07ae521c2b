"""Resources that are created and deleted with instances: volumes, network interfaces and spot requests.

At launch, volumes come from the image and the mappings. Also the Describe actions of these resources.
"""

from __future__ import annotations

import secrets
from typing import Any

from tenure.sandbox.aws.ec2.call import Call, new_id, new_mac, not_found, values_at
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, paginate, tag_facts
from tenure.sandbox.aws.ec2.instances.view import interface_view
from tenure.sandbox.aws.ec2.network.vpc import PREFIX_ADDRESSES, AddressPool
from tenure.sandbox.aws.ec2.records import Image, Instance, NetworkInterface, Volume
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.ec2.tags import read_specifications, tag_list
from tenure.sandbox.aws.wire.responses import AwsError, dry_run_ok

VOLUME_PATHS = {
    "attachment.device": "Attachments.Device",
    "attachment.instance-id": "Attachments.InstanceId",
    "attachment.status": "Attachments.State",
    "availability-zone": "AvailabilityZone",
    "encrypted": "Encrypted",
    "size": "Size",
    "snapshot-id": "SnapshotId",
    "status": "State",
    "volume-id": "VolumeId",
    "volume-type": "VolumeType",
}
INTERFACE_PATHS = {
    "addresses.private-ip-address": "PrivateIpAddresses.PrivateIpAddress",
    "attachment.attachment-id": "Attachment.AttachmentId",
    "attachment.instance-id": "Attachment.InstanceId",
    "attachment.status": "Attachment.Status",
    "availability-zone": "AvailabilityZone",
    "description": "Description",
    "group-id": "Groups.GroupId",
    "mac-address": "MacAddress",
    "network-interface-id": "NetworkInterfaceId",
    "owner-id": "OwnerId",
    "private-ip-address": "PrivateIpAddress",
    "status": "Status",
    "subnet-id": "SubnetId",
    "vpc-id": "VpcId",
}
SPOT_PATHS = {
    "spot-instance-request-id": "SpotInstanceRequestId",
    "instance-id": "InstanceId",
    "state": "State",
    "status-code": "Status.Code",
    "launched-availability-zone": "LaunchedAvailabilityZone",
    "type": "Type",
}
TAGS = frozenset({"tag-key", "tag-value"})
Views = list[dict[str, Any]]


def describe_volumes(call: Call) -> dict[str, Any]:
    views = [_volume_view(i, v) for i in _existing_instances(call.environment) for v in i.volumes]
    views = _select_by_id(views, call.params.get("VolumeIds"), "VolumeId", "vol", "volume")
    page_items, token = _filter_page(call, views, VOLUME_PATHS, "VolumeId")
    return {"Volumes": page_items, "NextToken": token}


def describe_network_interfaces(call: Call) -> dict[str, Any]:
    views = [
        _attached_interface_view(call.environment, i, n)
        for i in _existing_instances(call.environment)
        for n in range(len(i.interfaces))
    ]
    interface_ids = call.params.get("NetworkInterfaceIds")
    views = _select_by_id(views, interface_ids, "NetworkInterfaceId", "eni", "networkInterface")
    page_items, token = _filter_page(call, views, INTERFACE_PATHS, "NetworkInterfaceId")
    return {"NetworkInterfaces": page_items, "NextToken": token}


def describe_spot_instance_requests(call: Call) -> dict[str, Any]:
    views = [_request(i) for i in call.environment.instances.values() if i.spot_request_id]
    request_ids = call.params.get("SpotInstanceRequestIds")
    missing = set(request_ids or ()) - {view["SpotInstanceRequestId"] for view in views}
    if missing:
        raise AwsError(
            "InvalidSpotInstanceRequestID.NotFound", f"The spot instance request ID '{min(missing)}' does not exist"
        )
    views = [view for view in views if not request_ids or view["SpotInstanceRequestId"] in request_ids]
    page_items, token = _filter_page(call, views, SPOT_PATHS, "SpotInstanceRequestId")
    return {"SpotInstanceRequests": page_items, "NextToken": token}


def _existing_instances(environment: Environment) -> list[Instance]:
    return [instance for instance in environment.instances.values() if instance.state != "terminated"]


def _select_by_id(views: Views, ids: list[str] | None, key: str, prefix: str, noun: str) -> Views:
    if not ids:
        return views
    missing = sorted(set(ids) - {view[key] for view in views})
    if missing:
        raise not_found(missing, prefix, noun)
    return [view for view in views if view[key] in ids]


def _filter_page(call: Call, views: Views, paths: dict[str, str], key: str) -> tuple[Views, str | None]:
    filters = compile_filters(call.params.get("Filters"), frozenset(paths) | TAGS)
    if call.params.get("DryRun"):
        raise dry_run_ok()
    chosen = [view for view in views if matches_filters(filters, _filter_facts(view, paths))]
    chosen.sort(key=lambda view: str(view[key]))
    return paginate(chosen, call.params, lambda view: str(view[key]), low=5, high=1000)


def _filter_facts(view: dict[str, Any], paths: dict[str, str]) -> dict[str, list[str]]:
    tags = view.get("Tags") or view.get("TagSet") or []
    return {name: values_at(view, path) for name, path in paths.items()} | tag_facts(
        {tag["Key"]: tag["Value"] for tag in tags}
    )


def _volume_view(instance: Instance, volume: Volume) -> dict[str, Any]:
    return {
        "VolumeId": volume.id,
        "Size": volume.size,
        "VolumeType": volume.volume_type,
        "Iops": volume.iops,
        "Throughput": volume.throughput,
        "Encrypted": volume.encrypted,
        "KmsKeyId": volume.kms_key_id,
        "SnapshotId": volume.snapshot_id or "",
        "AvailabilityZone": instance.zone,
        "State": "in-use",
        "CreateTime": instance.launch_time,
        "MultiAttachEnabled": False,
        "Attachments": [
            {
                "InstanceId": instance.id,
                "VolumeId": volume.id,
                "Device": volume.device,
                "State": "attached",
                "AttachTime": instance.launch_time,
                "DeleteOnTermination": volume.delete_on_termination,
            }
        ],
        "Tags": tag_list(volume.tags),
    }


def _attached_interface_view(environment: Environment, instance: Instance, number: int) -> dict[str, Any]:
    interface = instance.interfaces[number]
    view = interface_view(environment, instance, interface)
    view["Attachment"] |= {"InstanceId": instance.id, "InstanceOwnerId": environment.account}
    return {**view, "AvailabilityZone": instance.zone, "TagSet": tag_list(interface.tags), "RequesterManaged": False}


def _request(instance: Instance) -> dict[str, Any]:
    alive = instance.state not in ("shutting-down", "terminated")
    specifications = read_specifications(instance.data.get("TagSpecifications"))
    return {
        "SpotInstanceRequestId": instance.spot_request_id,
        "InstanceId": instance.id,
        "State": "active" if alive else "closed",
        "Status": {
            "Code": "fulfilled" if alive else "instance-terminated-by-user",
            "Message": "Your spot request is fulfilled." if alive else "The instance was terminated.",
            "UpdateTime": instance.launch_time,
        },
        "Type": "one-time",
        "CreateTime": instance.launch_time,
        "LaunchedAvailabilityZone": instance.zone,
        "ProductDescription": "Linux/UNIX",
        "InstanceInterruptionBehavior": "terminate",
        "Tags": tag_list(specifications.get("spot-instances-request", {})),
    }


# Documentation range; interfaces get random addresses.
IPV6_NETWORK = "2001:db8"
Groups = list[tuple[str, str]]


def plan_mappings(image: Image, overrides: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Block devices of the image, overridden by those of the launch, device by device."""
    by_device = {m["DeviceName"]: m.get("Ebs", {}) for m in image.volumes}
    for mapping in overrides or ():
        device = mapping.get("DeviceName")
        if not device:
            raise AwsError("MissingParameter", "The request must contain the parameter deviceName")
        if "NoDevice" in mapping:
            by_device.pop(device, None)
        elif "Ebs" in mapping:
            by_device[device] = {**by_device.get(device, {}), **mapping["Ebs"]}
    return [{"DeviceName": device, "Ebs": ebs} for device, ebs in by_device.items()]


def make_volumes(mappings: list[dict[str, Any]], tags: dict[str, str]) -> list[Volume]:
    return [_devices_volume(mapping["DeviceName"], mapping["Ebs"], tags) for mapping in mappings]


def _devices_volume(device: str, ebs: dict[str, Any], tags: dict[str, str]) -> Volume:
    kind = ebs.get("VolumeType", "gp2")
    return Volume(
        id=new_id("vol"),
        device=device,
        size=ebs.get("VolumeSize", 8),
        volume_type=kind,
        encrypted=ebs.get("Encrypted", False),
        delete_on_termination=ebs.get("DeleteOnTermination", True),
        tags=dict(tags),
        iops=ebs.get("Iops", 3000 if kind == "gp3" else None),
        throughput=ebs.get("Throughput", 125 if kind == "gp3" else None),
        snapshot_id=ebs.get("SnapshotId"),
        kms_key_id=ebs.get("KmsKeyId"),
    )


def make_interfaces(
    specs: list[dict[str, Any]],
    *,
    address_pool: AddressPool,
    subnet_id: str,
    groups: Groups,
    public: bool,
    tags: dict[str, str],
    slots: int,
) -> list[NetworkInterface]:
    """One interface per entry, or a default one without entries. Raises InsufficientFreeAddressesInSubnet, and
    AttachmentLimitExceeded for more than `slots`.

    Addresses that were taken before the subnet was full are returned.
    """
    _require_slots(specs, slots)
    prefixed = PREFIX_ADDRESSES * sum(spec.get("Ipv4PrefixCount", 0) for spec in specs)
    if prefixed and address_pool.free_count() < prefixed + 1:
        raise full_subnet(subnet_id)
    made: list[NetworkInterface] = []
    for index, spec in enumerate(specs or [{}]):
        primary = spec.get("DeviceIndex", index) == 0 and spec.get("NetworkCardIndex", 0) == 0
        address = None if spec.get("InterfaceType") == "efa-only" else address_pool.allocate()
        if address is None and spec.get("InterfaceType") != "efa-only":
            for interface in made:
                address_pool.give_back(interface.private_ip or "")
            raise full_subnet(subnet_id)
        has_public_ip = spec.get("AssociatePublicIpAddress", public) and primary
        made.append(_devices_interface(spec, index, address, groups, has_public_ip, tags))
    address_pool.prefix_addresses += prefixed
    return made


def _require_slots(specs: list[dict[str, Any]], slots: int) -> None:
    if len(specs) > slots:
        raise AwsError("AttachmentLimitExceeded", f"Interface count {len(specs)} exceeds the limit of {slots}.")


def full_subnet(subnet_id: str) -> AwsError:
    return AwsError(
        "InsufficientFreeAddressesInSubnet",
        f"There are not enough free addresses in subnet '{subnet_id}' to satisfy the requested number of instances.",
    )


def _devices_interface(
    spec: dict[str, Any], index: int, address: str | None, groups: Groups, public: bool, tags: dict[str, str]
) -> NetworkInterface:
    prefixes = spec.get("Ipv4PrefixCount", 0)
    tail = secrets.token_hex(4)
    network = f"{IPV6_NETWORK}:{tail[:4]}:{tail[4:]}"
    return NetworkInterface(
        id=new_id("eni"),
        attachment_id=new_id("eni-attach"),
        mac=new_mac(),
        device_index=spec.get("DeviceIndex", index),
        card_index=spec.get("NetworkCardIndex", 0),
        interface_type=spec.get("InterfaceType", "interface"),
        private_ip=address,
        public_ip=f"54.{'.'.join(str(b) for b in secrets.token_bytes(3))}" if public else None,
        groups=groups,
        tags=dict(tags),
        description=spec.get("Description", ""),
        ipv6=[f"{network}::{n:x}" for n in range(1, spec.get("Ipv6AddressCount", 0) + 1)],
        ipv6_prefixes=[f"{network}:{n:x}::/80" for n in range(1, spec.get("Ipv6PrefixCount", 0) + 1)],
        ipv4_prefixes=[f"10.254.{index}.{16 * n}/28" for n in range(prefixes)],
    )
