"""Leases whose Node is gone are collected; those of live Nodes, and those that somebody renews, never."""

import pytest

from activities.garbage_collection.kubernetes import LeaseUpkeep
from tenure.model.errors import TryLater
from tenure.model.garbage_collection import LeaseMark, UpkeepDone
from tests.support.fakes.upkeep import FakeInventory
from tests.unit.activities.upkeep_world import Tidied
from tests.unit.activities.upkeep_world import run as run_task


@pytest.fixture
def world() -> FakeInventory:
    return Tidied().inventory


async def run(world: FakeInventory) -> UpkeepDone:
    return await run_task(LeaseUpkeep(inventory=world).collect_leases)


async def test_a_lease_goes_once_its_node_is_gone(world: FakeInventory) -> None:
    world.known_nodes.join("alive", "aws:///a/i-1")
    world.lease("alive", owner="uid-alive")
    world.lease("bare")
    world.known_nodes.join("bare", "aws:///a/i-2")
    world.lease("left")
    world.lease("left-with-owner", owner="uid-of-a-node-that-is-gone")
    done = await run(world)
    assert (done.looked_at, done.collected, done.failed) == (4, 2, 0)
    assert sorted(world.known_leases) == ["alive", "bare"]


async def test_a_lease_that_somebody_renews_stays(world: FakeInventory) -> None:
    """The kubelet's first Lease comes before its Node."""
    world.lease("about-to-join", renewed_ago=30)
    assert (await run(world)).collected == 0


async def test_a_lease_that_is_owned_by_a_node_of_another_name_stays(world: FakeInventory) -> None:
    world.known_nodes.join("renamed", "aws:///a/i-1")
    world.lease("old-name", owner="uid-renamed")
    assert (await run(world)).collected == 0


async def test_a_node_that_comes_while_leases_are_read_keeps_its_lease(world: FakeInventory) -> None:
    world.lease("back")
    lists = world.nodes

    async def one_step_behind() -> object:
        before = await lists()
        world.known_nodes.join("back", "aws:///a/i-1")
        return before

    world.nodes = one_step_behind  # type: ignore[assignment, method-assign]
    assert (await run(world)).collected == 0


async def test_a_lease_that_cannot_be_read_again_hurts_no_other(world: FakeInventory) -> None:
    for name in ("one", "two", "three"):
        world.lease(name)
    world.faults["node_lease"] = [TryLater("timed out")]
    done = await run(world)
    assert (done.collected, done.failed) == (2, 1)
    assert "timed out" in done.notes[0]


async def test_a_lease_that_was_renewed_since_it_was_judged_stays(world: FakeInventory) -> None:
    world.lease("renewed")
    delete = world.delete_lease

    async def too_late(lease: LeaseMark) -> bool:
        world.lease("renewed", renewed_ago=0)
        return await delete(lease)

    world.delete_lease = too_late  # type: ignore[method-assign]
    assert (await run(world)).collected == 0
    assert "renewed" in world.known_leases
