"""Zonal shifts as planning hears of them: marks for zones by name, and one event when one begins or ends."""

from tenure.controller.planning.catalog import Shifts
from tenure.model.errors import Throttled
from tests.support.controller.builders import World, node_class, pool
from tests.support.fakes.kubernetes import FakeEvents
from tests.unit.controller.test_planning import Types


class Zones(Types):
    def __init__(self) -> None:
        super().__init__()
        self.zones: frozenset[str] = frozenset()

    async def away(self) -> frozenset[str]:
        if self.broken:
            raise Throttled("told to fail")
        return self.zones


class Stage(World):
    def __init__(self) -> None:
        super().__init__()
        one = node_class("default")
        one["status"] |= {
            "subnets": [
                {"id": "subnet-1", "zone": "us-west-2a", "zoneID": "usw2-az1"},
                {"id": "subnet-2", "zone": "us-west-2b", "zoneID": "usw2-az2"},
            ]
        }
        self.hear("ec2nodeclasses", one)
        self.hear("nodepools", pool("general"))
        self.types, self.events = Zones(), FakeEvents()
        self.shifts = Shifts(self.caches, self.types, self.events)

    async def marked(self) -> list[str]:
        marks = await self.shifts.marks(self.now)
        assert all(
            mark.covers("m5.large", mark.zone, kind) for mark in marks for kind in ("spot", "on-demand", "reserved")
        )
        return [mark.zone for mark in marks]


async def test_a_zone_that_is_away_is_marked_by_its_name() -> None:
    stage = Stage()
    assert await stage.marked() == []
    stage.types.zones = frozenset({"usw2-az2", "usw2-az9"})
    assert await stage.marked() == ["us-west-2b"]


async def test_beginning_and_end_are_said_once_each() -> None:
    stage = Stage()
    stage.types.zones = frozenset({"usw2-az1"})
    await stage.marked()
    await stage.marked()
    stage.types.zones = frozenset()
    await stage.marked()
    assert stage.events.reasons("general") == ["ZonalShiftActive", "ZonalShiftCleared"]


async def test_shifts_that_cannot_be_read_are_what_they_were() -> None:
    stage = Stage()
    stage.types.zones = frozenset({"usw2-az1"})
    await stage.marked()
    stage.types.broken = True
    assert await stage.marked() == ["us-west-2a"]
    assert stage.events.reasons("general") == ["ZonalShiftActive"]
