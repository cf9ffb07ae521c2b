"""Zonal shifts in planning: unavailable offerings per zone name, and one event at the start and end of a shift.

Capacity that a zonal shift or a full reservation withholds is published when it becomes available."""

from tenure.controller.cache.changes import OfferingsAvailable
from tenure.controller.planning.catalog import LimitedCapacity, ZonalShifts
from tenure.model.errors import Throttled
from tests.support.controller.builders import CacheHarness, node_class, pool
from tests.support.fakes.kubernetes import FakeEvents
from tests.unit.controller.planning.provisioner_harness import FakeOfferings


class FakeZonalShifts(FakeOfferings):
    def __init__(self) -> None:
        super().__init__()
        self.zones: frozenset[str] = frozenset()

    async def fetch_shifted_zones(self) -> frozenset[str]:
        if self.broken:
            raise Throttled("told to fail")
        return self.zones


class ZonalShiftHarness(CacheHarness):
    def __init__(self) -> None:
        super().__init__()
        one = node_class("default")
        one["status"] |= {
            "subnets": [
                {"id": "subnet-1", "zone": "us-west-2a", "zoneID": "usw2-az1"},
                {"id": "subnet-2", "zone": "us-west-2b", "zoneID": "usw2-az2"},
            ]
        }
        self.apply_objects("ec2nodeclasses", one)
        self.apply_objects("nodepools", pool("general"))
        self.types, self.events = FakeZonalShifts(), FakeEvents()
        self.shifts = ZonalShifts(self.cache, self.types, self.events)

    async def unavailable_zones(self) -> list[str]:
        unavailable_offerings = await self.shifts.unavailable_offerings(self.now)
        assert all(
            offering.covers("m5.large", offering.zone, kind)
            for offering in unavailable_offerings
            for kind in ("spot", "on-demand", "reserved")
        )
        return [offering.zone for offering in unavailable_offerings]


async def test_shifted_zone_is_unavailable_by_its_name() -> None:
    harness = ZonalShiftHarness()
    assert await harness.unavailable_zones() == []
    harness.types.zones = frozenset({"usw2-az2", "usw2-az9"})
    assert await harness.unavailable_zones() == ["us-west-2b"]


async def test_start_and_end_of_a_shift_are_published_once() -> None:
    harness = ZonalShiftHarness()
    harness.types.zones = frozenset({"usw2-az1"})
    await harness.unavailable_zones()
    await harness.unavailable_zones()
    harness.types.zones = frozenset()
    await harness.unavailable_zones()
    assert harness.events.reasons_for("general") == ["ZonalShiftActive", "ZonalShiftCleared"]


async def test_unreadable_shifts_keep_their_last_state() -> None:
    harness = ZonalShiftHarness()
    harness.types.zones = frozenset({"usw2-az1"})
    await harness.unavailable_zones()
    harness.types.broken = True
    assert await harness.unavailable_zones() == ["us-west-2a"]
    assert harness.events.reasons_for("general") == ["ZonalShiftActive"]


async def test_end_of_a_full_reservation_or_of_a_subnet_makes_no_capacity_available() -> None:
    harness = ZonalShiftHarness()
    limited = LimitedCapacity(harness.cache, harness.types, harness.events, lambda: harness.now)
    published: list[OfferingsAvailable] = []
    harness.cache.subscribe(OfferingsAvailable, published.append)
    full = {"id": "cr-1", "instanceType": "m5.large", "availabilityZone": "us-west-2a"}
    changed = harness.cache.nodeclasses["default"].to_object()
    changed["status"] |= {"capacityReservations": [full]}
    harness.apply_objects("ec2nodeclasses", changed)
    harness.types.zones = frozenset({"usw2-az2"})
    await limited.read()
    changed["status"] |= {"capacityReservations": [], "subnets": changed["status"]["subnets"][:1]}
    harness.apply_objects("ec2nodeclasses", changed)
    await limited.read()
    assert not published
    harness.types.zones = frozenset({"usw2-az1"})
    await limited.read()
    harness.types.zones = frozenset()
    await limited.read()
    assert len(published) == 1
