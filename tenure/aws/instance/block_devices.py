"""The block device mappings of a launch template."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from tenure.apis.ec2nodeclass_instance import BlockDevice, BlockDeviceMapping
from tenure.apis.quantity import parse_quantity
from tenure.aws.amifamily.families import GIB, Family
from tenure.aws.amifamily.image_disks import ImageDisks


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
