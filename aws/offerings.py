"""The port `Offerings`: instance types with their offerings and prices, read once and kept.

`instance_types.py` resolves them against an EC2NodeClass; the result is kept until the class or the region changes.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from aws.client import AwsClients
from aws.instance_types import Region, ResolvedTypes, resolve_types
from aws.placement import PlacementGroups
from aws.price_estimates import estimate
from aws.prices import PriceBook, read_prices
from aws.reservations import Reservations
from aws.settings import AwsSettings
from aws.type_cache import TypeCache, key_of
from aws.type_info import TypeInfo
from aws.zonal_shift import ZonalShifts
from model.catalogue import Catalogue, InstanceType, ReservationRoom
from model.faults import Fault
from model.kinds import EC2NodeClass

_log = structlog.get_logger(__name__)

_REFRESH_SECONDS: Final = 12 * 3600.0
_AGAIN_SECONDS: Final = 600.0
"""After prices could not be read."""


class AwsOfferings:
    """One for the process. All methods raise model.faults."""

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
        """`region`: what was read already, so that it need not be read again at once."""
        self._clients, self._settings, self._clock = clients, settings, clock
        self._placement, self._zones, self._reservations = placement, zones, reservations
        self._region, self._epoch = region, 0
        self._due = clock() + _REFRESH_SECONDS if region else clock()
        self._refreshing: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._resolved = TypeCache()

    async def refresh(self) -> None:
        """Read what is due. Types must be read; prices that cannot be read keep their last value."""
        async with self._reading:
            await self._read_what_is_due()

    async def instance_types(self, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        return (await self.resolved(node_class)).types

    async def catalogue(self, node_classes: Sequence[EC2NodeClass]) -> Catalogue:
        """One that cannot be resolved now is left out: a class in trouble stops no other."""
        await self.region()
        found: dict[str, tuple[InstanceType, ...]] = {}
        for node_class in node_classes:
            try:
                found[node_class.name] = (await self.resolved(node_class)).types
            except Fault as fault:
                _log.warning("no instance types for a class", node_class=node_class.name, reason=fault.message)
        self._resolved.keep_only({node_class.uid for node_class in node_classes})
        return Catalogue(by_node_class=found)

    async def rooms(self, node_classes: Sequence[EC2NodeClass]) -> Mapping[str, ReservationRoom]:
        """How much room the classes' reservations have, as EC2 said within the last minute or when it last answered."""
        await self._reservations.freshen(node_classes)
        return self._reservations.rooms(node_classes)

    async def away(self) -> frozenset[str]:
        """Ids of the zones that the cluster is shifted away from."""
        return await self._zones.away()

    async def resolved(self, node_class: EC2NodeClass) -> ResolvedTypes:
        """The class's types, with their requirements; kept until something that they depend on changes."""
        region = await self.region()
        epoch = self._epoch
        group = await self._placement.resolve(node_class)
        reserved = self._reservations.of(node_class)
        key = key_of(node_class, epoch=epoch, group=group, reserved=reserved)
        held = self._resolved.get(node_class.uid, key)
        if held is None:
            held = await self._clients.in_thread(
                lambda: resolve_types(region, node_class, self._settings, group, reserved)
            )
            self._resolved.put(node_class.uid, key, held)
        return held

    async def region(self) -> Region:
        """Types, zones and prices. Waits for the first reading only; later ones go on beside those who ask."""
        if self._region is None:
            await self.refresh()
        elif self._clock() >= self._due and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.create_task(self._refresh_quietly())
        assert self._region is not None
        return self._region

    async def _refresh_quietly(self) -> None:
        try:
            await self.refresh()
        except Fault as fault:
            self._due = self._clock() + _AGAIN_SECONDS
            _log.warning("instance types could not be read again; the last known ones stand", reason=fault.message)

    async def _read_what_is_due(self) -> None:
        if self._region is not None and self._clock() < self._due:
            return
        types, prices = await asyncio.gather(self._read_types(), read_prices(self._clients, self._settings))
        before = self._region.prices if self._region else PriceBook()
        self._region = types.with_prices(before.merged(prices))
        self._epoch += 1
        self._due = self._clock() + (_REFRESH_SECONDS if prices.complete else _AGAIN_SECONDS)

    async def _read_types(self) -> Region:
        ec2 = self._clients.ec2
        infos, rows = await asyncio.gather(
            self._clients.pages(ec2.describe_instance_types, "InstanceTypes", TypeInfo.of, **_TYPES),
            self._clients.pages(
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
            prices=PriceBook(estimates={info.name: estimate(info, self._settings.region) for info in infos}),
        )


_TYPES: Final = {
    "Filters": [
        {"Name": "supported-virtualization-type", "Values": ["hvm"]},
        {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
    ],
    "PaginationConfig": {"PageSize": 100},
}
