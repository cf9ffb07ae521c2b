"""The volumes that images declare, read for images that a family does not determine.

An alias names images of AWS, whose devices the family knows. Other images may have another root device and other sizes.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from cachetools import TTLCache

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.amifamily.families import GIB, DefaultDisk, Family
from tenure.aws.client.cache import MAX_ENTRIES, get_or_load
from tenure.aws.client.client import AwsClients
from tenure.model.base import Value

_REFRESH_SECONDS: Final = 600.0
"""The disks of an image never change, but a new image may be missing at the first read."""


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


class ImageDiskReader:
    """Raises model.faults."""

    def __init__(self, clients: AwsClients, clock: Callable[[], float] = time.monotonic) -> None:
        self._clients = clients
        self._read: TTLCache[Hashable, DisksByImage] = TTLCache(MAX_ENTRIES, _REFRESH_SECONDS, timer=clock)

    async def disks_of(self, node_class: EC2NodeClass) -> DisksByImage:
        """The disks of the images in the status of the class."""
        image_ids = tuple(sorted({image.id for image in node_class.status.amis}))
        if not image_ids or any(term.alias for term in node_class.spec.ami_selector_terms):
            return {}
        return await get_or_load(self._read, image_ids, lambda: self._describe(image_ids))

    async def _describe(self, image_ids: tuple[str, ...]) -> DisksByImage:
        found = await self._clients.paginate(
            self._clients.ec2.describe_images,
            "Images",
            lambda raw: (str(raw["ImageId"]), _parse_disks(raw)),
            Filters=[{"Name": "image-id", "Values": list(image_ids)}],
            IncludeDeprecated=True,
            PaginationConfig={"PageSize": 1000},
        )
        return dict(found)


def _parse_disks(raw: Mapping[str, Any]) -> ImageDisks:
    volumes = (
        (one["DeviceName"], one.get("Ebs", {}).get("VolumeSize", 0) * GIB)
        for one in raw.get("BlockDeviceMappings") or ()
    )
    return ImageDisks(root_device=raw.get("RootDeviceName") or "", volumes=tuple(volumes))
