"""Leases whose Node is gone are collected; those of live Nodes, and those that somebody renews, never."""

import pytest

from activities.garbage_collection.kubernetes import LeaseCollector
from tenure.model.errors import TryLater
from tenure.model.garbage_collection import GarbageCollectionResult, InventoryLease
from tests.support.fakes.garbage_collection import FakeInventory
from tests.unit.activities.garbage_collection.fake_cluster import GarbageCollectionCluster
from tests.unit.activities.garbage_collection.fake_cluster import run_collection as run_task


@pytest.fixture
def inventory() -> FakeInventory:
    return GarbageCollectionCluster().inventory


async def collect_leases(inventory: FakeInventory) -> GarbageCollectionResult:
    return await run_task(LeaseCollector(inventory=inventory).collect_leases)


async def test_a_lease_goes_once_its_node_is_gone(inventory: FakeInventory) -> None:
    inventory.known_nodes.join("alive", "aws:///a/i-1")
    inventory.lease("alive", owner="uid-alive")
    inventory.lease("bare")
    inventory.known_nodes.join("bare", "aws:///a/i-2")
    inventory.lease("left")
    inventory.lease("left-with-owner", owner="uid-of-a-node-that-is-gone")
    done = await collect_leases(inventory)
    assert (done.checked, done.collected, done.failed) == (4, 2, 0)
    assert sorted(inventory.known_leases) == ["alive", "bare"]


async def test_a_lease_that_somebody_renews_stays(inventory: FakeInventory) -> None:
    """The kubelet's first Lease comes before its Node."""
    inventory.lease("about-to-join", renewed_ago=30)
    assert (await collect_leases(inventory)).collected == 0


async def test_a_lease_that_is_owned_by_a_node_of_another_name_stays(inventory: FakeInventory) -> None:
    inventory.known_nodes.join("renamed", "aws:///a/i-1")
    inventory.lease("old-name", owner="uid-renamed")
    assert (await collect_leases(inventory)).collected == 0


async def test_a_node_that_comes_while_leases_are_read_keeps_its_lease(inventory: FakeInventory) -> None:
    inventory.lease("back")
    lists = inventory.list_nodes

    async def one_step_behind() -> object:
        before = await lists()
        inventory.known_nodes.join("back", "aws:///a/i-1")
        return before

    inventory.list_nodes = one_step_behind  # type: ignore[assignment, method-assign]
    assert (await collect_leases(inventory)).collected == 0


async def test_a_lease_that_cannot_be_read_again_hurts_no_other(inventory: FakeInventory) -> None:
    for name in ("one", "two", "three"):
        inventory.lease(name)
    inventory.faults["node_lease"] = [TryLater("timed out")]
    done = await collect_leases(inventory)
    assert (done.collected, done.failed) == (2, 1)
    assert "timed out" in done.notes[0]


async def test_a_lease_that_was_renewed_since_it_was_judged_stays(inventory: FakeInventory) -> None:
    inventory.lease("renewed")
    delete = inventory.delete_lease

    async def too_late(lease: InventoryLease) -> bool:
        inventory.lease("renewed", renewed_ago=0)
        return await delete(lease)

    inventory.delete_lease = too_late  # type: ignore[method-assign]
    assert (await collect_leases(inventory)).collected == 0
    assert "renewed" in inventory.known_leases
