"""Resolved instance types, kept by all that they depend on: classes that ask for the same share them.

A change that does not matter to types (tags, user data, the order of subnets) resolves nothing, and one that does is a
key of its own, so that nothing stale is ever found.
"""

import json
from collections.abc import Collection, Sequence
from typing import Final

from aws.families import family_of
from aws.instance_types import ResolvedTypes
from aws.placement import PlacementGroup
from model.kinds import EC2NodeClass
from model.kinds.ec2nodeclass import ResolvedCapacityReservation

_MATTERS_NOT: Final = {
    "subnet_selector_terms",
    "security_group_selector_terms",
    "capacity_reservation_selector_terms",
    "placement_group_selector",
    "ami_selector_terms",
    "associate_public_ip_address",
    "user_data",
    "role",
    "instance_profile",
    "tags",
    "detailed_monitoring",
    "metadata_options",
    "context",
}
"""Fields of the spec that types do not depend on, or only through what the selectors resolved to."""


def key_of(
    node_class: EC2NodeClass,
    *,
    epoch: int,
    group: PlacementGroup | None,
    reserved: Sequence[ResolvedCapacityReservation],
) -> str:
    """`epoch`: of the region's types and prices. Images count in their order, which decides between them."""
    status = node_class.status
    zones = sorted({(subnet.zone, subnet.zone_id) for subnet in status.subnets})
    parts = (
        epoch,
        family_of(node_class).name,
        node_class.spec.model_dump_json(exclude=_MATTERS_NOT),
        zones,
        [image.model_dump_json() for image in status.amis],
        group.model_dump_json() if group else None,
        [one.model_dump_json() for one in reserved],
    )
    return json.dumps(parts)


class TypeCache:
    """What no class asks for any more is dropped."""

    def __init__(self) -> None:
        self._held: dict[str, ResolvedTypes] = {}
        self._key_of_class: dict[str, str] = {}

    def get(self, uid: str, key: str) -> ResolvedTypes | None:
        return self._held.get(key) if self._key_of_class.get(uid) == key else self._shared(uid, key)

    def put(self, uid: str, key: str, types: ResolvedTypes) -> None:
        self._key_of_class[uid] = key
        self._held[key] = types
        self._sweep()

    def keep_only(self, uids: Collection[str]) -> None:
        """The others are gone."""
        self._key_of_class = {uid: key for uid, key in self._key_of_class.items() if uid in uids}
        self._sweep()

    def _shared(self, uid: str, key: str) -> ResolvedTypes | None:
        found = self._held.get(key)
        if found is not None:
            self.put(uid, key, found)
        return found

    def _sweep(self) -> None:
        wanted = set(self._key_of_class.values())
        self._held = {key: types for key, types in self._held.items() if key in wanted}
