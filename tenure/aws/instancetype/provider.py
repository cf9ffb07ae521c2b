"""The port `Offerings`: the region's instance types, offerings and prices, read periodically.

Resolved types are cached by everything that they depend on, so that classes share them and no entry is outdated.
"""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import structlog
from cachetools import TTLCache

from tenure.apis.ec2nodeclass import EC2NodeClass, ResolvedCapacityReservation
from tenure.aws.amifamily.families import family_of
from tenure.aws.amifamily.image_disks import DisksByImage
from tenure.aws.amifamily.images import ImageDiskReader
from tenure.aws.client.cache import MAX_ENTRIES
from tenure.aws.client.client import AwsClients
from tenure.aws.instancetype.capacity_reservations import Reservations
from tenure.aws.instancetype.gpu_sharing import shares_gpus
from tenure.aws.instancetype.info import TypeInfo
from tenure.aws.instancetype.prices import PriceTable, read_prices
from tenure.aws.instancetype.resolver import Region, ResolvedTypes, resolve_types
from tenure.aws.instancetype.static_prices import estimate_price, estimate_windows_license
from tenure.aws.interruption.zonal_shift import ZonalShifts
from tenure.aws.nodeclass.placement_groups import PlacementGroup, PlacementGroups
from tenure.aws.settings import AwsSettings
from tenure.model.instance_types import Catalogue, InstanceType, ReservationHeadroom

_MATTERS_NOT: Final = frozenset(
    """
    subnet_selector_terms security_group_selector_terms capacity_reservation_selector_terms placement_group_selector
    ami_selector_terms associate_public_ip_address user_data role instance_profile tags detailed_monitoring
    metadata_options context
    """.split()  # noqa: SIM905
)
"""Fields of the spec that do not affect types, or only through resolved selectors."""


def key_of(
    node_class: EC2NodeClass,
    *,
    epoch: int,
    group: PlacementGroup | None,
    reserved: Sequence[ResolvedCapacityReservation],
    disks: DisksByImage,
) -> str:
    """Cache key. `epoch`: version of the region's types and prices. Images are ordered, because the first fit wins."""
    status = node_class.status
    zones = sorted({(subnet.zone, subnet.zone_id) for subnet in status.subnets})
    parts = (
        epoch,
        family_of(node_class).name,
        node_class.spec.model_dump_json(exclude=set(_MATTERS_NOT)),
        zones,
        [image.model_dump_json() for image in status.amis],
        group.model_dump_json() if group else None,
        [one.model_dump_json() for one in reserved],
        {image: one.model_dump_json() for image, one in disks.items()},
        shares_gpus(node_class),
    )
    return json.dumps(parts, sort_keys=True)


_UNUSED_SECONDS: Final = 24 * 3600.0


class TypeCache:
    """Resolved types by UID of the class. Classes with an equal key share an entry. Types that were not used for a day
    are forgotten: a process that only launches does not know which classes are gone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._by_class: TTLCache[str, tuple[str, ResolvedTypes]] = TTLCache(MAX_ENTRIES, _UNUSED_SECONDS, timer=clock)

    def get(self, uid: str, key: str) -> ResolvedTypes | None:
        types = next((types for known, types in self._by_class.values() if known == key), None)
        if types is not None:
            self.put(uid, key, types)
        return types

    def put(self, uid: str, key: str, types: ResolvedTypes) -> None:
        self._by_class[uid] = key, types

    def retain_only(self, uids: Collection[str]) -> None:
        for uid in self._by_class.keys() - uids:
            self._by_class.pop(uid, None)


_log = structlog.get_logger(__name__)

_REFRESH_SECONDS: Final = 12 * 3600.0
_RETRY_SECONDS: Final = 600.0
"""Retry interval after a failed read."""


class AwsOfferings:
    """One instance per process. All methods raise model.faults."""

    def __init__(
        self,
        clients: AwsClients,
        settings: AwsSettings,
        *,
        placement: PlacementGroups,
        zones: ZonalShifts,
        reservations: Reservations,
        region: Region | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`region`: data that was already read."""
        self._clients, self._settings, self._clock = clients, settings, clock
        self._placement, self._zones, self._reservations = placement, zones, reservations
        self._region, self._epoch = region, 0
        self._due = clock() + _REFRESH_SECONDS if region else clock()
        self._refreshing: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._resolved = TypeCache()
        self._image_disks = ImageDiskReader(clients, clock)

    async def refresh(self) -> None:
        """Refresh types and prices if due. Data that cannot be read keeps its last value; raises only without one."""
        async with self._reading:
            try:
                await self._read_what_is_due()
            except Exception as error:
                if self._region is None:
                    raise
                self._due = self._clock() + _RETRY_SECONDS
                _log.warning("failed to refresh instance types, using the last known ones", reason=str(error))

    async def instance_types(self, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        return (await self.types_for(node_class)).types

    async def catalogue(self, node_classes: Sequence[EC2NodeClass]) -> Catalogue:
        """Types of the classes. A class that cannot be resolved is left out and does not affect others."""
        await self.region()
        found: dict[str, tuple[InstanceType, ...]] = {}
        for node_class in node_classes:
            try:
                found[node_class.name] = (await self.types_for(node_class)).types
            except Exception as error:
                _log.warning("failed to resolve instance types", node_class=node_class.name, reason=str(error))
        self._resolved.retain_only({node_class.uid for node_class in node_classes})
        return Catalogue(by_node_class=found)

    async def reservation_capacities(self, node_classes: Sequence[EC2NodeClass]) -> Mapping[str, ReservationHeadroom]:
        """EC2's counts of the classes' reservations, at most a minute old unless queries fail."""
        await self._reservations.refresh_counts(node_classes)
        return self._reservations.capacities(node_classes)

    async def fetch_shifted_zones(self) -> frozenset[str]:
        return await self._zones.fetch_shifted_zones()

    async def types_for(self, node_class: EC2NodeClass) -> ResolvedTypes:
        """The class's types; cached until something that they depend on changes."""
        region = await self.region()
        epoch = self._epoch
        group = await self._placement.resolve(node_class)
        reserved = self._reservations.for_nodeclass(node_class)
        disks = await self.image_disks(node_class)
        key = key_of(node_class, epoch=epoch, group=group, reserved=reserved, disks=disks)
        types = self._resolved.get(node_class.uid, key)
        if types is None:
            types = await self._clients.in_thread(
                lambda: resolve_types(region, node_class, self._settings, group, reserved, disks)
            )
            self._resolved.put(node_class.uid, key, types)
        return types

    async def image_disks(self, node_class: EC2NodeClass) -> DisksByImage:
        """Disks of the class's images that are not determined by its family."""
        return await self._image_disks.disks_of(node_class)

    async def region(self) -> Region:
        """Types, zones and prices. Only the first call waits for a read; later reads run in the background."""
        if self._region is None:
            await self.refresh()
        elif self._clock() >= self._due and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.create_task(self.refresh())
        assert self._region is not None
        return self._region

    async def _read_what_is_due(self) -> None:
        if self._region is not None and self._clock() < self._due:
            return
        types, prices = await asyncio.gather(self._read_types(), read_prices(self._clients, self._settings))
        before = self._region.prices if self._region else PriceTable()
        self._region = types.with_prices(before.merge(prices))
        self._epoch += 1
        self._due = self._clock() + (_REFRESH_SECONDS if prices.complete else _RETRY_SECONDS)

    async def _read_types(self) -> Region:
        ec2 = self._clients.ec2
        infos, rows = await asyncio.gather(
            self._clients.paginate(ec2.describe_instance_types, "InstanceTypes", TypeInfo.from_ec2, **_TYPES),
            self._clients.paginate(
                ec2.describe_instance_type_offerings,
                "InstanceTypeOfferings",
                lambda row: (str(row["InstanceType"]), str(row["Location"])),
                LocationType="availability-zone",
                PaginationConfig={"PageSize": 1000},
            ),
        )
        zones_of: dict[str, set[str]] = {}
        for name, zone in rows:
            zones_of.setdefault(name, set()).add(zone)
        return Region(
            types={info.name: info for info in sorted(infos, key=lambda info: info.name)},
            zones_of={name: frozenset(zones) for name, zones in zones_of.items()},
            zones=tuple(sorted({zone for _, zone in rows})),
            prices=PriceTable(
                estimates={info.name: estimate_price(info, self._settings.region) for info in infos},
                windows_licenses={info.name: estimate_windows_license(info, self._settings.region) for info in infos},
            ),
        )


_TYPES: Final = {
    "Filters": [
        {"Name": "supported-virtualization-type", "Values": ["hvm"]},
        {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
    ],
    "PaginationConfig": {"PageSize": 100},
}
