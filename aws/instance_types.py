"""The instance types of the region as they would run under one EC2NodeClass.

From `type_info.py` (EC2's facts), prices and the subnets and images that the class resolved to; the result is what
planning sees and what `fleet_request.py` launches from.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from aws.capacity import Machine, capacity_of
from aws.compatibility import why_incompatible
from aws.families import Family, family_of
from aws.image_map import ImageMap
from aws.kubelet import Kubelet
from aws.overhead import overhead_of
from aws.placement import PlacementGroup
from aws.prices import PriceBook
from aws.settings import AwsSettings
from aws.type_info import TypeInfo
from aws.type_labels import TYPE_KEYS, type_labels
from model import labels
from model.catalogue import InstanceType, Offering
from model.kinds import EC2NodeClass
from model.learnt import Learnt, as_learnt
from model.requirements import Requirements


@dataclass(frozen=True, slots=True)
class Region:
    """What is known of the region, read at the start and every some hours."""

    types: Mapping[str, TypeInfo]
    zones_of: Mapping[str, frozenset[str]]
    """Instance type to the zones that offer it."""
    zones: tuple[str, ...]
    prices: PriceBook

    def with_prices(self, book: PriceBook) -> "Region":
        """With what AWS says of prices in `book`, and the estimates that are here."""
        return replace(self, prices=replace(book, estimates=self.prices.estimates))


class ResolvedTypes:
    """The types of one EC2NodeClass. Requirements are made when first asked for and then kept."""

    def __init__(self, types: Iterable[InstanceType]) -> None:
        self.types = tuple(types)
        self._requirements: dict[str, Requirements] = {}

    @cached_property
    def by_name(self) -> Mapping[str, InstanceType]:
        return {one.name: one for one in self.types}

    def heeding(self, learnt: Learnt) -> "ResolvedTypes":
        """The same types with the memory that such machines have shown; what was made of their labels stands."""
        if not learnt.images:
            return self
        found = ResolvedTypes(as_learnt(one, learnt) for one in self.types)
        found._requirements = self._requirements
        return found

    def requirements(self, instance_type: InstanceType) -> Requirements:
        """What a node of this type is, as requirements; well-known keys it lacks are said to be absent."""
        found = self._requirements.get(instance_type.name)
        if found is None:
            found = Requirements.of_choices(instance_type.labels, absent=TYPE_KEYS)
            self._requirements[instance_type.name] = found
        return found


def resolve_types(
    region: Region, node_class: EC2NodeClass, settings: AwsSettings, group: PlacementGroup | None = None
) -> ResolvedTypes:
    """Every type of the region, with only those offerings available that could really be launched."""
    resolver = _Resolver(region, node_class, settings, group)
    return ResolvedTypes(resolver.resolve(info) for info in region.types.values())


class _Resolver:
    def __init__(
        self, region: Region, node_class: EC2NodeClass, settings: AwsSettings, group: PlacementGroup | None
    ) -> None:
        self._region, self._node_class, self._settings, self._group = region, node_class, settings, group
        self._family: Family = family_of(node_class)
        self._kubelet = Kubelet.of(node_class.spec.kubelet)
        self._zone_ids = {subnet.zone: subnet.zone_id for subnet in node_class.status.subnets}
        self._images = ImageMap(node_class.status.amis)

    def resolve(self, info: TypeInfo) -> InstanceType:
        offered = self._region.zones_of.get(info.name, frozenset())
        zones = {zone: zone_id for zone, zone_id in self._zone_ids.items() if zone in offered}
        strategy = self._group.strategy if self._group else ""
        machine = Machine(info, self._family, self._kubelet, self._node_class.spec, self._settings, strategy)
        described = type_labels(info, self._family, self._settings.region, zones)
        if self._group:
            described[labels.PLACEMENT_GROUP_ID] = (self._group.id,)
        capacity = capacity_of(machine)
        image = self._images.image_for(described)
        launchable = bool(image) and not why_incompatible(machine)
        return InstanceType(
            name=info.name,
            labels=described,
            capacity=capacity,
            overhead=overhead_of(machine, capacity),
            offerings=tuple(self._offerings(info, zones if launchable else {})),
            image_id=image,
        )

    def _offerings(self, info: TypeInfo, launchable: Mapping[str, str]) -> Sequence[Offering]:
        found = []
        for zone in self._region.zones:
            for capacity_type in (labels.ON_DEMAND, labels.SPOT):
                price = self._region.prices.price(info.name, zone, capacity_type)
                if price is None or capacity_type not in info.usage_classes:
                    continue
                found.append(
                    Offering(
                        zone=zone,
                        zone_id=self._zone_ids.get(zone, ""),
                        capacity_type=capacity_type,
                        price=price,
                        available=zone in launchable,
                    )
                )
        return found
