"""The parts of an EC2NodeClass that AWS resolves, each by itself: status fields, and a condition with its reason.

Every method raises model.faults where AWS does not answer; `node_class.py` keeps that from the other parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from aws.image_aliases import AliasError
from aws.images import Images
from aws.network import Networks
from aws.placement import PlacementGroups
from aws.profiles import Profiles
from aws.reservations import Reservations
from model import labels
from model.faults import BadInput, Conflict, Fault, Forbidden, NotFound
from model.image_pins import ImagePin, pin_in_force
from model.kinds import EC2NodeClass
from model.kinds.ec2nodeclass import ResolvedAmi
from model.kinds.meta import KubeModel
from model.outcomes import ConditionPatch


@dataclass(frozen=True, slots=True)
class Part:
    """What is not in it stays as it stands on the object."""

    status: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[ConditionPatch, ...] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    images: Images
    networks: Networks
    profiles: Profiles
    placement: PlacementGroups
    reservations: Reservations

    async def amis(self, node_class: EC2NodeClass) -> Part:
        try:
            found = await self.images.resolve(node_class)
        except AliasError as error:
            return Part({"amis": []}, (false(labels.AMIS_READY, labels.UNSUPPORTED_ALIAS, str(error)),))
        used, said = await self._pinned(node_class, found)
        missing = "spec.amiSelectorTerms match no image"
        part = _listed("amis", used, labels.AMIS_READY, labels.AMI_NOT_FOUND, missing)
        return replace(part, conditions=(*part.conditions, *said))

    async def _pinned(
        self, node_class: EC2NodeClass, found: Sequence[ResolvedAmi]
    ) -> tuple[Sequence[ResolvedAmi], tuple[ConditionPatch, ...]]:
        """Where a roll-out was rolled back the last good images take the place of those that failed."""
        pin = pin_in_force(node_class, datetime.now(UTC))
        if pin is None or not any(one.id in pin.images for one in found):
            left = node_class.condition(labels.IMAGES_PINNED) is not None
            return found, (ConditionPatch(type=labels.IMAGES_PINNED, status=""),) if left else ()
        used, gone = await self.images.pinned(pin, found)
        return used, (_images_pinned(pin, found, gone),)

    async def subnets(self, node_class: EC2NodeClass) -> Part:
        found = [subnet.resolved() for subnet in await self.networks.subnets(node_class)]
        missing = "spec.subnetSelectorTerms match no subnet"
        return _listed("subnets", found, labels.SUBNETS_READY, labels.SUBNETS_NOT_FOUND, missing)

    async def groups(self, node_class: EC2NodeClass) -> Part:
        found = await self.networks.groups(node_class)
        missing = "spec.securityGroupSelectorTerms match no security group"
        return _listed("securityGroups", found, labels.SECURITY_GROUPS_READY, labels.SECURITY_GROUPS_NOT_FOUND, missing)

    async def profile(self, node_class: EC2NodeClass) -> Part:
        """A role or a permission that is missing may come: the condition is unknown until it does."""
        try:
            name = await self.profiles.resolve(node_class)
        except (NotFound, Forbidden, Conflict, BadInput) as fault:
            waits = ConditionPatch(
                type=labels.INSTANCE_PROFILE_READY,
                status="Unknown",
                reason=labels.AWAITING_RECONCILIATION,
                message=fault.message,
            )
            return Part(conditions=(waits,))
        return Part({"instanceProfile": name}, (true(labels.INSTANCE_PROFILE_READY),))

    async def reserved(self, node_class: EC2NodeClass) -> Part:
        """Without the gate there is no condition, and what was left in the status when it was on is emptied."""
        if not self.reservations.enabled:
            left = node_class.condition(labels.CAPACITY_RESERVATIONS_READY) is not None
            off = (ConditionPatch(type=labels.CAPACITY_RESERVATIONS_READY, status=""),) if left else ()
            return Part({"capacityReservations": []} if node_class.status.capacity_reservations else {}, off)
        found = [one.to_object() for one in await self.reservations.resolve(node_class)]
        return Part({"capacityReservations": found}, (true(labels.CAPACITY_RESERVATIONS_READY),))

    async def placement_group(self, node_class: EC2NodeClass) -> Part:
        try:
            await self.placement.resolve(node_class)
        except NotFound as fault:
            return _no_group(labels.PLACEMENT_GROUP_NOT_FOUND, fault)
        except (Forbidden, BadInput) as fault:
            return _no_group(labels.PLACEMENT_GROUP_RESOLUTION_FAILED, fault)
        return Part(conditions=(true(labels.PLACEMENT_GROUP_READY),))


def true(condition: str) -> ConditionPatch:
    return ConditionPatch(type=condition, status="True")


def false(condition: str, reason: str, message: str) -> ConditionPatch:
    return ConditionPatch(type=condition, status="False", reason=reason, message=message)


def _images_pinned(pin: ImagePin, found: Sequence[ResolvedAmi], gone: Sequence[str]) -> ConditionPatch:
    pairs = ", ".join(
        f"{pin.images[one.id]} instead of {one.id}"
        for one in found
        if one.id in pin.images and pin.images[one.id] not in gone
    )
    told = f"rolled back by {pin.by} at {pin.since.isoformat(timespec='minutes')}: {pin.reason}" if pairs else ""
    lost = f"{', '.join(gone)} would be used instead and is no longer there" if gone else ""
    until = (
        f"until {pin.until.isoformat(timespec='minutes')}, another image, other amiSelectorTerms, or the annotation "
        f"{labels.IMAGE_PIN} is taken away"
    )
    message = "; ".join(part for part in (pairs, told, lost, until) if part)
    reason = labels.ROLLED_BACK if pairs else labels.IMAGE_GONE
    return ConditionPatch(
        type=labels.IMAGES_PINNED, status="True" if pairs else "False", reason=reason, message=message
    )


def _no_group(reason: str, fault: Fault) -> Part:
    return Part(
        conditions=(false(labels.PLACEMENT_GROUP_READY, reason, f"spec.placementGroupSelector: {fault.message}"),)
    )


def _listed(key: str, found: Sequence[KubeModel], condition: str, reason: str, missing: str) -> Part:
    status = {key: [one.to_object() for one in found]}
    return Part(status, (true(condition) if found else false(condition, reason, missing),))
