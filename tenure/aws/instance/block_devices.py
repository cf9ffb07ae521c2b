"""The block device mappings of a launch template."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from tenure.apis.ec2nodeclass_instance import BlockDevice, BlockDeviceMapping
from tenure.apis.quantity import parse_quantity
from tenure.aws.amifamily.families import GIB, Family
from tenure.aws.amifamily.image_disks import UNKNOWN_DISKS, DisksByImage, ImageDisks


def block_device_mappings(
    mappings: Sequence[BlockDeviceMapping], family: Family, disks: ImageDisks
) -> dict[str, list[dict[str, Any]]]:
    """The mappings of the EC2NodeClass, else the defaults of the family; empty if it has none.

    A root volume without a device name is the disk with the kubelet's directories.
    """
    found = [_from_spec(one, disks.kubelet_device(family)) for one in mappings] or [
        {
            "DeviceName": disk.device,
            "Ebs": {"Encrypted": True, "VolumeType": "gp3", "VolumeSize": ceil(disk.size / GIB)},
        }
        for disk in disks.default_disks(family)
    ]
    return {"BlockDeviceMappings": found} if found else {}


def why_root_not_mapped(mappings: Sequence[BlockDeviceMapping], family: Family, images: DisksByImage) -> str:
    """A warning if the mappings leave the root volume of an image as the image declares it.

    No warning: mappings of the root device, or of the disk with the kubelet's directories (Bottlerocket's /dev/xvdb).
    `images`: empty if the family determines the disks.
    """
    for image_id, disks in sorted((images or {"": UNKNOWN_DISKS}).items()):
        root = disks.root_device or (family.disks[0].device if family.disks else "")
        kubelet_device = disks.kubelet_device(family)
        devices = [one.device_name or (kubelet_device if one.root_volume else "") for one in mappings]
        if devices and root and not {root, kubelet_device} & set(devices):
            image = f"image {image_id}" if image_id else family.name
            return (
                f"spec.blockDeviceMappings[].deviceName: {', '.join(map(repr, devices))}: the root device of {image} "
                f"is {root!r}, so its root volume keeps the size and encryption of the image; add a mapping of {root!r}"
            )
    return ""


def _from_spec(mapping: BlockDeviceMapping, kubelet_device: str) -> dict[str, Any]:
    device = mapping.device_name or (kubelet_device if mapping.root_volume else "")
    found: dict[str, Any] = {"DeviceName": device} if device else {}
    return found | ({"Ebs": _ebs_request(mapping.ebs)} if mapping.ebs else {})


def _ebs_request(ebs: BlockDevice) -> dict[str, Any]:
    """Sizes are whole GiB, rounded up."""
    named = {
        "DeleteOnTermination": ebs.delete_on_termination,
        "Encrypted": ebs.encrypted,
        "Iops": ebs.iops,
        "KmsKeyId": ebs.kms_key_id,
        "SnapshotId": ebs.snapshot_id,
        "Throughput": ebs.throughput,
        "VolumeInitializationRate": ebs.volume_initialization_rate,
        "VolumeSize": ceil(parse_quantity(ebs.volume_size) / GIB) if ebs.volume_size else None,
        "VolumeType": ebs.volume_type,
    }
    return without_none(named)


def without_none(named: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that are set."""
    return {name: value for name, value in named.items() if value is not None}
