"""The volumes that images declare, known for images that a family does not determine.

An alias names images of AWS, whose devices the family knows. Other images may have another root device and other sizes.
"""

from collections.abc import Mapping
from typing import Final

from tenure.aws.amifamily.families import DefaultDisk, Family
from tenure.model.base import Value


class ImageDisks(Value):
    root_device: str = ""
    volumes: tuple[tuple[str, int], ...] = ()
    """Device and size in bytes of each EBS volume."""

    def size_of(self, device: str) -> int:
        """Bytes; 0 if the image declares no such volume."""
        return dict(self.volumes).get(device, 0)

    def kubelet_device(self, family: Family) -> str:
        """The device with the kubelet's directories; empty if neither the image nor the family determines it."""
        own_disk = len(family.disks) > 1
        return family.data_device if own_disk else self.root_device or family.data_device

    def default_disks(self, family: Family) -> tuple[DefaultDisk, ...]:
        """The family's disks, on the image's root device. EC2 accepts no volume smaller than the image's."""
        if not family.disks:
            return ()
        root = DefaultDisk(self.root_device or family.disks[0].device, family.disks[0].size)
        disks = (root, *family.disks[1:])
        return tuple(DefaultDisk(one.device, max(one.size, self.size_of(one.device))) for one in disks)


UNKNOWN_DISKS: Final = ImageDisks()
DisksByImage = Mapping[str, ImageDisks]
"""By image ID. Images whose disks the family determines are left out."""
