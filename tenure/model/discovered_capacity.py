"""The smallest memory seen on nodes, by instance type and image.

A node may offer pods less memory than estimated for its EC2NodeClass, for example when user data reserves more. The
difference is recorded as lower capacity for that spec of the class. The Provisioning workflow stores the record; plans
and launches use it in place of the estimate.
"""

from collections.abc import Mapping, Set
from datetime import datetime, timedelta
from typing import Final

from tenure.apis.resources import MEMORY
from tenure.model.base import Message
from tenure.model.instance_types import InstanceType

UNUSED_RETENTION: Final = timedelta(days=60)
"""How long capacity of an image is kept after the last EC2NodeClass stopped using it (reference 2.3)."""
MAX_ENTRIES: Final = 10_000
"""About 250 KB, far below Temporal's payload limit."""


class DiscoveredCapacity(Message):
    """Bytes, as kubelets report them in `status.capacity`, by image and instance type."""

    images: dict[str, dict[str, int]] = {}
    """By image ID, or by image ID and the hash of the EC2NodeClass's spec (`image_spec_key`)."""

    def get_memory(self, image_id: str, instance_type: str, spec_hash: str = "") -> int | None:
        """Memory to plan with for nodes of an EC2NodeClass with this `spec_hash`; None if none was discovered."""
        keys = (image_id, image_spec_key(image_id, spec_hash)) if spec_hash else (image_id,)
        observed = [self.images[key][instance_type] for key in keys if instance_type in self.images.get(key, ())]
        return min(observed, default=None)

    @property
    def entry_count(self) -> int:
        return sum(len(types) for types in self.images.values())

    def merge(self, other: "DiscoveredCapacity") -> "DiscoveredCapacity":
        updates = other.find_updates(self)
        if not updates.images:
            return self
        images = {image: {**self.images.get(image, {}), **types} for image, types in updates.images.items()}
        return DiscoveredCapacity(images={**self.images, **images})

    def restrict_to_images(self, images: Set[str]) -> "DiscoveredCapacity":
        """Only the entries of these images, under any spec."""
        retained = {key: types for key, types in self.images.items() if key in images or parse_image_id(key) in images}
        return self if len(retained) == len(self.images) else DiscoveredCapacity(images=retained)

    def find_updates(self, other: "DiscoveredCapacity") -> "DiscoveredCapacity":
        images = {image: _select_smaller(types, other.images.get(image, {})) for image, types in self.images.items()}
        return DiscoveredCapacity(images={image: types for image, types in images.items() if types})


def image_spec_key(image_id: str, spec_hash: str) -> str:
    """The key for capacity of an image that applies only to one spec of an EC2NodeClass."""
    return f"{image_id}/{spec_hash}"


def parse_image_id(key: str) -> str:
    return key.partition("/")[0]


NO_DISCOVERED_CAPACITY: Final = DiscoveredCapacity()


class ObservedCapacity(Message):
    """Signal to the Provisioning workflow: capacity of live Nodes, and the images in use."""

    discovered: DiscoveredCapacity = DiscoveredCapacity()
    images: tuple[str, ...] = ()
    """Every image that any EC2NodeClass resolves to now."""
    images_by_class: dict[str, tuple[str, ...]] = {}
    """The same images by EC2NodeClass."""


class DiscoveredCapacityState(Message):
    discovered: DiscoveredCapacity = DiscoveredCapacity()
    unused_since: dict[str, datetime] = {}
    """Images that no EC2NodeClass uses, with the time at which the last one stopped."""
    images_by_class: dict[str, tuple[str, ...]] = {}

    def for_node_class(self, name: str) -> DiscoveredCapacity:
        return self.discovered.restrict_to_images(set(self.images_by_class.get(name, ())))

    def apply_observation(self, observed: ObservedCapacity, now: datetime) -> "DiscoveredCapacityState":
        """Merge an observation, and drop images that are unused for UNUSED_RETENTION.

        Beyond MAX_ENTRIES, images unused for the longest time are dropped first, then images by ID.
        """
        discovered = self.discovered.merge(observed.discovered)
        idle = [image for image in discovered.images if parse_image_id(image) not in observed.images]
        unused = {image: self.unused_since.get(image, now) for image in idle}
        retained = [
            image for image in discovered.images if image not in unused or now - unused[image] < UNUSED_RETENTION
        ]
        retained.sort(key=lambda image: (image not in unused, unused.get(image, now), image), reverse=True)
        images = _limit_entries({image: discovered.images[image] for image in retained})
        return DiscoveredCapacityState(
            discovered=DiscoveredCapacity(images=images),
            unused_since={image: unused[image] for image in images if image in unused},
            images_by_class=observed.images_by_class,
        )


def with_discovered_memory(
    instance_type: InstanceType, discovered: DiscoveredCapacity, spec_hash: str = ""
) -> InstanceType:
    """The instance type with its discovered memory in place of the estimate. Overhead stays estimated (reference 3.3,
    3.4)."""
    memory = discovered.get_memory(instance_type.image_id, instance_type.name, spec_hash)
    if memory is None or memory == instance_type.capacity.get(MEMORY):
        return instance_type
    return instance_type.model_copy(update={"capacity": {**instance_type.capacity, MEMORY: memory}})


def _select_smaller(types: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    return {name: memory for name, memory in types.items() if name not in known or memory < known[name]}


def _limit_entries(images: Mapping[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    remaining = MAX_ENTRIES
    for image, types in images.items():
        if len(types) > remaining:
            continue
        found[image] = types
        remaining -= len(types)
    return found
