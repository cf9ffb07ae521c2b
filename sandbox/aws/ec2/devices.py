"""What an instance is made of at launch: its volumes from the image and the mappings, its interfaces and addresses."""

from __future__ import annotations

import secrets
from typing import Any

from sandbox.aws.ec2.ids import new_id, new_mac
from sandbox.aws.ec2.network import PREFIX_ADDRESSES, AddressBook
from sandbox.aws.ec2.records import Image, NetworkInterface, Volume
from sandbox.aws.wire.errors import AwsError

# Of documentation's own range; interfaces draw from it at random.
IPV6_NETWORK = "2001:db8"
Groups = list[tuple[str, str]]


def plan_mappings(image: Image, overrides: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The image's block devices with the launch's own laid over them, device by device."""
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
    return [_volume(mapping["DeviceName"], mapping["Ebs"], tags) for mapping in mappings]


def _volume(device: str, ebs: dict[str, Any], tags: dict[str, str]) -> Volume:
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
    book: AddressBook,
    subnet_id: str,
    groups: Groups,
    public: bool,
    tags: dict[str, str],
    slots: int,
) -> list[NetworkInterface]:
    """One interface per entry, or a plain one if there is none. Raises InsufficientFreeAddressesInSubnet, and
    AttachmentLimitExceeded for more than the type has `slots` for.

    Addresses taken before the subnet ran dry are given back.
    """
    _require_slots(specs, slots)
    prefixed = PREFIX_ADDRESSES * sum(spec.get("Ipv4PrefixCount", 0) for spec in specs)
    if prefixed and book.free() < prefixed + 1:
        raise full_subnet(subnet_id)
    made: list[NetworkInterface] = []
    for index, spec in enumerate(specs or [{}]):
        primary = spec.get("DeviceIndex", index) == 0 and spec.get("NetworkCardIndex", 0) == 0
        address = None if spec.get("InterfaceType") == "efa-only" else book.take()
        if address is None and spec.get("InterfaceType") != "efa-only":
            for interface in made:
                book.give_back(interface.private_ip or "")
            raise full_subnet(subnet_id)
        wants_public = spec.get("AssociatePublicIpAddress", public) and primary
        made.append(_interface(spec, index, address, groups, wants_public, tags))
    book.held += prefixed
    return made


def _require_slots(specs: list[dict[str, Any]], slots: int) -> None:
    if len(specs) > slots:
        raise AwsError("AttachmentLimitExceeded", f"Interface count {len(specs)} exceeds the limit of {slots}.")


def full_subnet(subnet_id: str) -> AwsError:
    return AwsError(
        "InsufficientFreeAddressesInSubnet",
        f"There are not enough free addresses in subnet '{subnet_id}' to satisfy the requested number of instances.",
    )


def _interface(
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
