"""Instance types for the planner, sent only when they changed; unavailable zones, and counts of reservations."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from activities.ports.core import Events, Offerings, publish_event_on
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.controller.cache.changes import OfferingsAvailable
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.signals.digests import short_hash
from tenure.model.errors import Fault
from tenure.model.instance_types import Catalogue, InstanceType, ReservationHeadroom, UnavailableOffering

log = structlog.get_logger(__name__)

FRESH_FOR: Final = timedelta(minutes=5)
RETRY_AFTER: Final = timedelta(seconds=3)
"""After a failure."""


class CatalogueFeed:
    def __init__(self, cache: ClusterCache, offerings: Offerings, now: Callable[[], datetime]) -> None:
        self._cache, self._offerings, self._now = cache, offerings, now
        self._fetched_shapes: dict[str, str] = {}
        self._next: datetime | None = None
        self._failed_at: datetime | None = None
        self.catalogue = Catalogue()
        self._digest = _catalogue_digest(self.catalogue)
        self._sent = ""
        self._by_name: dict[str, dict[str, InstanceType]] = {}
        self._subscribers: list[Callable[[Catalogue], None]] = []

    def subscribe(self, handler: Callable[[Catalogue], None]) -> None:
        """`handler` is called with every changed catalogue."""
        self._subscribers.append(handler)

    def reset_sent(self) -> None:
        """A new planner process has no catalogue."""
        self._sent = ""

    def confirm_sent(self) -> None:
        """The planner received the latest catalogue."""
        self._sent = self._digest

    def unknown_nodeclasses(self) -> list[str]:
        """NodeClasses of usable pools whose instance types are not known yet."""
        used = {view.fact.node_class for view in self._cache.nodepools.values() if view.fact.ready}
        return sorted(name for name in used if name in self._cache.nodeclasses and name not in self._fetched_shapes)

    def types_of(self, node_class: EC2NodeClass) -> Mapping[str, InstanceType] | None:
        """By name, for the current form of the class; None while they are unknown."""
        name = node_class.name
        if self._fetched_shapes.get(name) != _nodeclass_shape(node_class) or name not in self.catalogue.by_node_class:
            return None
        if name not in self._by_name:
            self._by_name[name] = {one.name: one for one in self.catalogue.by_node_class[name]}
        return self._by_name[name]

    async def refresh(self) -> bool:
        """Refresh the instance types that are due; True when the planner lacks the latest ones. A failure is logged and
        retried soon, and the old catalogue stays in use."""
        classes = self._used_nodeclasses()
        shapes = {name: _nodeclass_shape(one) for name, one in classes.items()}
        now = self._now()
        if shapes != self._fetched_shapes or self._next is None or now >= self._next:
            try:
                await self._fetch(list(classes.values()), shapes, now)
            except Fault as fault:
                log.warning("instance types not read", fault=str(fault))
                self._fetched_shapes = {name: known for name, known in self._fetched_shapes.items() if name in shapes}
        return self._digest != self._sent

    def _used_nodeclasses(self) -> dict[str, EC2NodeClass]:
        """Classes that a NodePool or NodeClaim names, unless they are not ready. Each costs a list of all types."""
        pools = {view.fact.node_class for view in self._cache.nodepools.values()}

        def is_named(name: str) -> bool:
            return name in pools or any(claim.node_class == name for claim in self._cache.nodeclaims.values())

        known = self._cache.nodeclasses
        return {name: one for name, one in known.items() if not _is_not_ready(one) and is_named(name)}

    async def _fetch(self, classes: Sequence[EC2NodeClass], shapes: dict[str, str], now: datetime) -> None:
        if self._failed_at is not None and now - self._failed_at < RETRY_AFTER:
            return
        self._failed_at = now
        await self._offerings.refresh()
        self.catalogue = await self._offerings.catalogue(classes)
        self._cache.set_catalogue(self.catalogue)
        self._by_name = {}
        before = (self._digest, self._fetched_shapes)
        self._digest = _catalogue_digest(self.catalogue)
        self._fetched_shapes, self._next, self._failed_at = shapes, now + FRESH_FOR, None
        if before != (self._digest, self._fetched_shapes):
            for handler in self._subscribers:
                handler(self.catalogue)
            self._cache.publish(OfferingsAvailable())


def _is_not_ready(node_class: EC2NodeClass) -> bool:
    ready = node_class.condition(labels.READY)
    return ready is not None and ready.is_false


def _nodeclass_shape(node_class: EC2NodeClass) -> str:
    """Hash of the fields that its instance types depend on: spec, readiness and resolved selectors."""
    ready = node_class.condition(labels.READY)
    resolved = node_class.status.model_copy(update={"conditions": ()})
    return short_hash(f"{node_class.metadata.generation} {ready and ready.status} {resolved.model_dump_json()}")


def _catalogue_digest(catalogue: Catalogue) -> str:
    return hashlib.sha256(catalogue.model_dump_json().encode()).hexdigest()


def find_full_zones(
    unavailable: Sequence[UnavailableOffering], node_classes: Iterable[EC2NodeClass]
) -> Iterator[UnavailableOffering]:
    """One for each zone in which all subnets of an EC2NodeClass are full, since plans do not know subnets."""
    for node_class in node_classes:
        full = {one.subnet_id: one for one in unavailable if one.node_class == node_class.name and one.subnet_id}
        usable_zones = {subnet.zone for subnet in node_class.status.subnets if subnet.id not in full}
        for subnet in node_class.status.subnets:
            if subnet.zone not in usable_zones:
                yield full[subnet.id].model_copy(update={"zone": subnet.zone, "subnet_id": ""})


_UNAVAILABLE_FOR: Final = timedelta(minutes=1)
"""Longer than a plan takes; the next plan reads the zonal shifts again."""


class ZonalShifts:
    def __init__(self, cache: ClusterCache, offerings: Offerings, events: Events) -> None:
        self._cache, self._offerings, self._events = cache, offerings, events
        self._known: frozenset[str] = frozenset()

    async def unavailable_offerings(self, now: datetime) -> tuple[UnavailableOffering, ...]:
        """One for each zone with an active zonal shift. If they cannot be read, the last known shifts apply."""
        try:
            shifted_zones = await self._offerings.fetch_shifted_zones()
        except Fault as fault:
            log.warning("zonal shifts not read", fault=str(fault))
            shifted_zones = self._known
        await self._publish_events(shifted_zones)
        names = {
            subnet.zone
            for one in self._cache.nodeclasses.values()
            for subnet in one.status.subnets
            if subnet.zone_id in shifted_zones
        }
        return tuple(
            UnavailableOffering(
                instance_type="*", zone=zone, capacity_type="*", until=now + _UNAVAILABLE_FOR, reason="ZonalShift"
            )
            for zone in sorted(names)
        )

    async def _publish_events(self, shifted_zones: frozenset[str]) -> None:
        begun, ended, self._known = shifted_zones - self._known, self._known - shifted_zones, shifted_zones
        for reason, zones, text in (
            ("ZonalShiftActive", begun, "has an active zonal shift: no nodes are launched there"),
            ("ZonalShiftCleared", ended, "no longer has a zonal shift: nodes are launched there again"),
        ):
            for zone in sorted(zones):
                for view in self._cache.nodepools.values():
                    await publish_event_on(self._events, "NodePool", view.fact, reason, f"Zone {zone} {text}")


CHECK_SECONDS: Final = 30.0
"""Between reads of limited capacity. A successful read of reservations is cached for a minute, so half of them call
EC2."""


class LimitedCapacity:
    """Zonal shifts, and free instances of capacity reservations. AWS does not announce when these change."""

    def __init__(self, cache: ClusterCache, offerings: Offerings, events: Events, now: Callable[[], datetime]) -> None:
        self._cache, self._offerings, self._now = cache, offerings, now
        self._shifts = ZonalShifts(cache, offerings, events)
        self._exhausted: frozenset[str] = frozenset()
        """Zones with a zonal shift, and reservations without free instances."""

    async def read(self) -> tuple[tuple[UnavailableOffering, ...], Mapping[str, ReservationHeadroom]]:
        """The offerings in zones with a zonal shift, and EC2's counts of reservations. Every read publishes capacity
        that has become available."""
        node_classes = list(self._cache.nodeclasses.values())
        shifted = await self._shifts.unavailable_offerings(self._now())
        reservations = await self._offerings.reservation_capacities(node_classes)
        selected = {one.id for node_class in node_classes for one in node_class.status.capacity_reservations}
        free = {name for name, headroom in reservations.items() if headroom.available > 0}
        exhausted = frozenset(one.zone for one in shifted) | (selected - free)
        zones = {subnet.zone for node_class in node_classes for subnet in node_class.status.subnets}
        released, self._exhausted = (self._exhausted - exhausted) & (zones | selected), exhausted
        if released:
            log.info("capacity became available", zones_and_reservations=sorted(released))
            self._cache.publish(OfferingsAvailable())
        return shifted, reservations

    async def run(self) -> None:
        """Runs until cancelled. Nothing is read unless the last pass found a zonal shift or a full reservation."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if self._exhausted:
                try:
                    await self.read()
                except Exception:
                    log.exception("limited capacity not read")
