"""The instance types of the region under one EC2NodeClass. Incompatible types stay listed, with nothing available."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass, ResolvedCapacityReservation
from tenure.apis.ec2nodeclass_instance import NetworkInterface
from tenure.apis.feature_gates import FeatureGate
from tenure.aws.amifamily.families import Family, family_of
from tenure.aws.amifamily.images import ImageMap
from tenure.aws.instancetype.capacity import Machine, capacity_of, overhead_of
from tenure.aws.instancetype.capacity_reservations import reserved_labels, reserved_offerings
from tenure.aws.instancetype.info import TYPE_KEYS, TypeInfo, type_labels
from tenure.aws.instancetype.prices import PriceTable
from tenure.aws.kubelet.config import Kubelet
from tenure.aws.kubelet.expressions import ComputedKubelet, ExpressionError
from tenure.aws.nodeclass.placement_groups import PlacementGroup
from tenure.aws.settings import AwsSettings
from tenure.model.discovered_capacity import DiscoveredCapacity, with_discovered_memory
from tenure.model.instance_types import InstanceType, Offering
from tenure.model.nodeoverlays import OverlayFact, apply_overlays
from tenure.model.requirements import Requirements


def why_incompatible(machine: Machine) -> str:
    """Empty when the type can be launched under the class."""
    info, spec = machine.info, machine.spec
    if not info.architecture:
        return "its architecture is neither amd64 nor arm64"
    if machine.family.name == "AL2023" and info.name.startswith("a1."):
        return "AL2023 does not boot on the a1 family"
    nested = spec.cpu_options.nested_virtualization if spec.cpu_options else None
    if nested == "enabled" and "nested-virtualization" not in info.processor_features:
        return "its processor has no nested virtualization"
    if spec.connection_tracking and info.hypervisor != "nitro":
        return "connection tracking can be set on Nitro machines only"
    if machine.strategy and machine.strategy not in info.strategies:
        return f"it cannot stand in a placement group of strategy {machine.strategy}"
    if 0 < (spec.ip_prefix_count or 0) >= _address_slots(machine):
        return "its interfaces take fewer addresses than spec.ipPrefixCount asks for"
    return _why_interfaces(machine) if spec.network_interfaces else ""


def _address_slots(machine: Machine) -> int:
    """Addresses of an interface; a prefix takes the place of one, and the interface's own address one more."""
    info = machine.info
    return info.ipv6_per_interface if machine.settings.is_ipv6 else info.ipv4_per_interface


def _why_interfaces(machine: Machine) -> str:
    info, interfaces = machine.info, machine.spec.network_interfaces
    limits = {card.index: card.interfaces for card in info.cards}
    if not info.ena:
        return "its network has no ENA"
    if any(_exceeds_limit(limits, one) for one in interfaces):
        return "it has fewer network cards or interfaces than spec.networkInterfaces names"
    if sum(1 for one in interfaces if one.interface_type == "efa-only") > info.efa_interfaces:
        return "it has fewer EFA interfaces than spec.networkInterfaces names"
    return ""


def _exceeds_limit(limits: dict[int, int], one: NetworkInterface) -> bool:
    return one.device_index >= limits.get(one.network_card_index, 0)


_Laid = tuple[tuple[OverlayFact, ...], dict[str, str]]
"""NodeOverlays, and the labels of nodes that they ask for."""
_MOST_LAID: Final = 8
_OFFERING_DECIDES: Final = (*labels.RESERVATION_LABELS, labels.PLACEMENT_GROUP_PARTITION)
"""Keys on which the offerings of one type differ: the type's values exclude none of its offerings."""


@dataclass(frozen=True, slots=True)
class Region:
    """Data of the region, read at the start and every few hours."""

    types: Mapping[str, TypeInfo]
    zones_of: Mapping[str, frozenset[str]]
    """Instance type to the zones that offer it."""
    zones: tuple[str, ...]
    prices: PriceTable

    def with_prices(self, prices: PriceTable) -> "Region":
        """Prices of AWS from `prices`, with the present estimates."""
        return replace(self, prices=replace(prices, estimates=self.prices.estimates))


class ResolvedTypes:
    """The types of one EC2NodeClass. Requirements are made when first asked for and then kept."""

    def __init__(self, types: Iterable[InstanceType], kubelets: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.types = tuple(types)
        self.kubelets = kubelets if kubelets is not None else {}
        """spec.kubelet by type, where expressions in it have been computed."""
        self._requirements: dict[str, Requirements] = {}
        self._discovered_variant: tuple[DiscoveredCapacity, str, ResolvedTypes] | None = None
        self._overlaid: deque[tuple[_Laid, ResolvedTypes]] = deque(maxlen=_MOST_LAID)

    @property
    def placement_group(self) -> str:
        """Id of the group that all of them are launched into; empty without one."""
        return self.types[0].placement_group if self.types else ""

    @cached_property
    def by_name(self) -> Mapping[str, InstanceType]:
        return {one.name: one for one in self.types}

    def with_discovered(self, discovered: DiscoveredCapacity, spec_hash: str = "") -> "ResolvedTypes":
        """The same types with discovered memory; their labels are reused."""
        if not discovered.images:
            return self
        if self._discovered_variant is None or self._discovered_variant[:2] != (discovered, spec_hash):
            found = ResolvedTypes(
                (with_discovered_memory(one, discovered, spec_hash) for one in self.types), self.kubelets
            )
            found._requirements = self._requirements
            self._discovered_variant = (discovered, spec_hash, found)
        return self._discovered_variant[2]

    def with_overlays(self, overlays: Sequence[OverlayFact], labels: Mapping[str, str]) -> "ResolvedTypes":
        """The same types as NodeOverlays say they are on nodes with these labels. Raises RequirementError."""
        if not overlays:
            return self
        required_keys = {requirement.key for one in overlays for requirement in one.requirements}
        cache_key = (tuple(overlays), {key: value for key, value in labels.items() if key in required_keys})
        known = next((found for before, found in self._overlaid if before == cache_key), None)
        if known is None:
            known = ResolvedTypes(apply_overlays(self.types, overlays, labels), self.kubelets)
            known._requirements = self._requirements
            self._overlaid.append((cache_key, known))
        return known

    def requirements(self, instance_type: InstanceType) -> Requirements:
        """Labels of a node of this type as requirements; well-known keys it lacks are DoesNotExist."""
        found = self._requirements.get(instance_type.name)
        if found is None:
            found = Requirements.from_choices(instance_type.labels, absent=TYPE_KEYS).without(*_OFFERING_DECIDES)
            self._requirements[instance_type.name] = found
        return found


def resolve_types(
    region: Region,
    node_class: EC2NodeClass,
    settings: AwsSettings,
    group: PlacementGroup | None = None,
    reservations: Sequence[ResolvedCapacityReservation] = (),
) -> ResolvedTypes:
    """Every type of the region, with only those offerings available that could really be launched.

    Reserved ones are, whatever room is left in their reservations: that changes with every launch.
    """
    resolver = _Resolver(region, node_class, settings, group, reservations)
    return ResolvedTypes([resolver.resolve(info) for info in region.types.values()], resolver.kubelets)


class _Resolver:
    def __init__(
        self,
        region: Region,
        node_class: EC2NodeClass,
        settings: AwsSettings,
        group: PlacementGroup | None,
        reservations: Sequence[ResolvedCapacityReservation],
    ) -> None:
        self._region, self._node_class, self._settings, self._group = region, node_class, settings, group
        self._reservations = reservations
        self._family: Family = family_of(node_class)
        self._kubelet = Kubelet.of(node_class.spec.kubelet)
        self._computed = ComputedKubelet(
            node_class.spec.kubelet, enabled=settings.is_gate_enabled(FeatureGate.NODECLASS_CEL)
        )
        self.kubelets: dict[str, Mapping[str, Any]] = {}
        self._zone_ids = {subnet.zone: subnet.zone_id for subnet in node_class.status.subnets}
        self._images = ImageMap(node_class.status.amis)

    def resolve(self, info: TypeInfo) -> InstanceType:
        offered = self._region.zones_of.get(info.name, frozenset())
        zones = {zone: zone_id for zone, zone_id in self._zone_ids.items() if zone in offered}
        strategy = self._group.strategy if self._group else ""
        machine = Machine(info, self._family, self._kubelet, self._node_class.spec, self._settings, strategy)
        machine, computed = self._with_expressions(machine)
        described = type_labels(info, self._family, self._settings.region, zones)
        if self._group:
            described |= self._group.labels()
        matching = [one for one in self._reservations if one.instance_type == info.name]
        described = reserved_labels(described, matching)
        capacity = capacity_of(machine)
        image = self._images.image_for(described)
        launchable = bool(image) and computed and not why_incompatible(machine)
        return InstanceType(
            name=info.name,
            labels=described,
            capacity=capacity,
            overhead=overhead_of(machine, capacity),
            offerings=tuple(self._offerings(info, zones if launchable else {}, matching)),
            image_id=image,
        )

    def _with_expressions(self, machine: Machine) -> tuple[Machine, bool]:
        """False for a type on which an expression has no value: it alone is not launched."""
        if not self._computed:
            return machine, True
        try:
            evaluated, filled = self._computed.apply_to(machine)
        except ExpressionError:
            return machine, False
        self.kubelets[machine.info.name] = filled
        return evaluated, True

    def _offerings(
        self, info: TypeInfo, launchable: Mapping[str, str], matching: Sequence[ResolvedCapacityReservation]
    ) -> Sequence[Offering]:
        base = self._base_offerings(info, launchable)
        reserved = reserved_offerings(matching, base, self._zone_ids, launchable.keys())
        return self._group.spread_over_partitions([*base, *reserved]) if self._group else [*base, *reserved]

    def _base_offerings(self, info: TypeInfo, launchable: Mapping[str, str]) -> Sequence[Offering]:
        return [
            Offering(
                zone=zone,
                zone_id=self._zone_ids.get(zone, ""),
                capacity_type=capacity_type,
                price=price,
                available=zone in launchable,
            )
            for zone in self._region.zones
            for capacity_type in (labels.ON_DEMAND, labels.SPOT)
            if capacity_type in info.usage_classes
            and (price := self._region.prices.price(info.name, zone, capacity_type)) is not None
        ]
