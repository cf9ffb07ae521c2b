"""What tasks of upkeep read at about the same time is read once, and what must be fresh is read anew."""

import asyncio

import pytest

from activities.garbage_collection import base
from activities.garbage_collection.base import Lists, Shared
from tenure.model.errors import Throttled
from tests.unit.activities.upkeep_world import Tidied, run


class Reading:
    def __init__(self) -> None:
        self.times = 0
        self.faults: list[Exception] = []

    async def read(self) -> list[int]:
        self.times += 1
        await asyncio.sleep(0)
        if self.faults:
            raise self.faults.pop()
        return [self.times]


async def test_who_asks_at_about_the_same_time_shares_one_list() -> None:
    reading = Reading()
    shared = Shared(reading.read)
    assert list(await asyncio.gather(shared.lately(), shared.lately())) == [[1], [1]]
    assert await shared.lately() == [1] and reading.times == 1


async def test_who_needs_it_fresh_reads_it_and_the_others_have_that() -> None:
    shared = Shared(Reading().read)
    assert (await shared.lately(), await shared.anew(), await shared.lately()) == ([1], [2], [2])


async def test_it_is_kept_for_a_short_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "LATELY", 0.01)
    shared = Shared(Reading().read)
    assert await shared.lately() == [1]
    await asyncio.sleep(0.05)
    assert await shared.lately() == [2]


async def test_a_fault_is_nobody_else_s() -> None:
    reading = Reading()
    reading.faults = [Throttled("slow down")]
    shared = Shared(reading.read)
    with pytest.raises(Throttled):
        await shared.lately()
    assert await shared.lately() == [2]


async def test_a_nodeclaim_that_came_since_the_instances_were_listed_is_never_overlooked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its instance would be ended: NodeClaims are read after the instances, whatever was read lately."""
    world = Tidied()
    lists = Lists(instances=world.found, inventory=world.inventory)
    monkeypatch.setattr(Tidied, "lists", lists)
    assert await lists.claims.lately() == []
    world.claim("late", world.instance("i-late", age=600))
    await run(world.instances.end_unowned_instances)
    assert list(world.found.running) == ["i-late"]


async def test_an_instance_that_came_since_the_list_keeps_its_nodeclaim(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Tidied()
    lists = Lists(instances=world.found, inventory=world.inventory)
    monkeypatch.setattr(Tidied, "lists", lists)
    assert await lists.instances.lately() == []
    world.claim("late", world.instance("i-late"), Registered="True")
    done = await run(world.objects.collect_claims)
    assert (done.looked_at, done.suspects, list(world.claims.found)) == (1, (), ["late"])
