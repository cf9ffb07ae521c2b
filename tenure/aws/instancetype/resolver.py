"""Resolves the instance types of the region under one EC2NodeClass.

Incompatible types stay listed, without available offerings.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass, ResolvedCapacityReservation
from tenure.apis.feature_gates import FeatureGate
from tenure.aws.amifamily.families import Family, family_of
from tenure.aws.amifamily.image_disks import UNKNOWN_DISKS, DisksByImage
from tenure.aws.amifamily.images import ImageMap
from tenure.aws.instancetype.capacity import Machine, capacity_of, ebs_attachments_of, overhead_of
from tenure.aws.instancetype.capacity_reservations import reserved_labels, reserved_offerings
from tenure.aws.instancetype.device_templates import device_templates_of
from tenure.aws.instancetype.gpu_sharing import shares_gpus
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
    """Why the type cannot be launched under the class; empty if it can."""
    info, spec = machine.info, machine.spec
    if not info.architecture:
        return "its architecture is neither amd64 nor arm64"
    if machine.family.name == "AL2023" and info.name.startswith("a1."):
        return "AL2023 does not boot on the a1 family"
    nested = spec.cpu_options.nested_virtualization if spec.cpu_options else None
    if nested == "enabled" and "nested-virtualization" not in info.processor_features:
        return "its processor does not support nested virtualization"
    if spec.enclaves_enabled and not info.enclaves:
        return "it does not support Nitro Enclaves"
    if spec.connection_tracking and info.hypervisor != "nitro":
        return "connection tracking requires a Nitro instance"
    if machine.strategy and machine.strategy not in info.strategies:
        return f"it does not support placement groups of strategy {machine.strategy}"
    if 0 < (spec.ip_prefix_count or 0) >= _address_slots(machine):
        return "its interfaces support fewer addresses than spec.ipPrefixCount"
    return _why_interfaces(machine) if spec.network_interfaces else ""


def _address_slots(machine: Machine) -> int:
    """Addresses per interface. A prefix uses one of them, and so does the interface itself."""
    info = machine.info
    return info.ipv6_per_interface if machine.settings.is_ipv6 else info.ipv4_per_interface


def _why_interfaces(machine: Machine) -> str:
    info, interfaces = machine.info, machine.spec.network_interfaces
    limits = {card.index: card.interfaces for card in info.cards}
    if not info.ena:
        return "its network does not support ENA"
    if any(one.device_index >= limits.get(one.network_card_index, 0) for one in interfaces):
        return "it has fewer network cards or interfaces than spec.networkInterfaces"
    if sum(1 for one in interfaces if one.interface_type == "efa-only") > info.efa_interfaces:
        return "it has fewer EFA interfaces than spec.networkInterfaces"
    return ""


_OverlayKey = tuple[tuple[OverlayFact, ...], dict[str, str]]
"""NodeOverlays, and the node labels that their requirements use."""
_MAX_OVERLAID: Final = 8
_OFFERING_KEYS: Final = (*labels.RESERVATION_LABELS, labels.PLACEMENT_GROUP_PARTITION)
"""Keys that differ between the offerings of a type, so the type's requirements leave them out."""


@dataclass(frozen=True, slots=True)
class Region:
    """Data of the region, refreshed every few hours."""

    types: Mapping[str, TypeInfo]
    zones_of: Mapping[str, frozenset[str]]
    """Instance type to the zones that offer it."""
    zones: tuple[str, ...]
    prices: PriceTable

    def with_prices(self, prices: PriceTable) -> "Region":
        """Replace AWS's prices and keep the estimates."""
        estimates, licenses = self.prices.estimates, self.prices.windows_licenses
        return replace(self, prices=replace(prices, estimates=estimates, windows_licenses=licenses))


class ResolvedTypes:
    """The types of one EC2NodeClass. Requirements are built on first use and cached."""

    def __init__(self, types: Iterable[InstanceType], kubelets: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.types = tuple(types)
        self.kubelets = kubelets if kubelets is not None else {}
        """spec.kubelet by type, with the values of its expressions; empty without expressions."""
        self._requirements: dict[str, Requirements] = {}
        self._discovered_variant: tuple[DiscoveredCapacity, str, ResolvedTypes] | None = None
        self._overlaid: deque[tuple[_OverlayKey, ResolvedTypes]] = deque(maxlen=_MAX_OVERLAID)

    @property
    def placement_group(self) -> str:
        """ID of the placement group of all types; empty without a group."""
        return self.types[0].placement_group if self.types else ""

    @cached_property
    def by_name(self) -> Mapping[str, InstanceType]:
        return {one.name: one for one in self.types}

    def with_discovered(self, discovered: DiscoveredCapacity, spec_hash: str = "") -> "ResolvedTypes":
        """The types with discovered memory."""
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
        """The types with the NodeOverlays that apply to nodes with these labels. Raises RequirementError."""
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
        """Labels of nodes of this type as requirements; missing well-known keys are DoesNotExist."""
        found = self._requirements.get(instance_type.name)
        if found is None:
            found = Requirements.from_choices(instance_type.labels, absent=TYPE_KEYS).without(*_OFFERING_KEYS)
            self._requirements[instance_type.name] = found
        return found


def resolve_types(
    region: Region,
    node_class: EC2NodeClass,
    settings: AwsSettings,
    group: PlacementGroup | None = None,
    reservations: Sequence[ResolvedCapacityReservation] = (),
    disks: DisksByImage | None = None,
) -> ResolvedTypes:
    """Every type of the region. Only launchable offerings are available.

    Reserved offerings are available regardless of free capacity, which changes with every launch.
    """
    resolver = _Resolver(region, node_class, settings, group, reservations, disks or {})
    return ResolvedTypes([resolver.resolve(info) for info in region.types.values()], resolver.kubelets)


class _Resolver:
    def __init__(
        self,
        region: Region,
        node_class: EC2NodeClass,
        settings: AwsSettings,
        group: PlacementGroup | None,
        reservations: Sequence[ResolvedCapacityReservation],
        disks: DisksByImage,
    ) -> None:
        self._region, self._node_class, self._settings, self._group = region, node_class, settings, group
        self._reservations, self._disks = reservations, disks
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
        described = type_labels(info, self._family, self._settings.region, zones)
        if self._group:
            described |= self._group.labels()
        matching = [one for one in self._reservations if one.instance_type == info.name]
        described = reserved_labels(described, matching)
        image = self._images.image_for(described)
        disks = self._disks.get(image, UNKNOWN_DISKS)
        machine = Machine(info, self._family, self._kubelet, self._node_class.spec, self._settings, strategy, disks)
        machine, computed = self._with_expressions(machine)
        capacity = capacity_of(machine)
        launchable = bool(image) and computed and not why_incompatible(machine)
        return InstanceType(
            name=info.name,
            labels=described,
            capacity=capacity,
            overhead=overhead_of(machine, capacity),
            offerings=tuple(self._offerings(info, zones if launchable else {}, matching)),
            image_id=image,
            ebs_attachments=ebs_attachments_of(machine),
            device_templates=device_templates_of(
                info, capacity, self._settings, shared_gpus=shares_gpus(self._node_class)
            ),
        )

    def _with_expressions(self, machine: Machine) -> tuple[Machine, bool]:
        """Apply the expressions of spec.kubelet; False if one has no value for this type, which is then unavailable."""
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
            and (price := self._region.prices.price(info.name, zone, capacity_type, self._family.os)) is not None
        ]
