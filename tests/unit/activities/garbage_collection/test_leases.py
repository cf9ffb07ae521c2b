"""Leases whose Node is gone are collected; those of live Nodes, and those that somebody renews, never."""

from tenure.model.errors import TryLater
from tenure.model.garbage_collection import InventoryLease
from tests.unit.activities.builders import FakeCluster, run_collection


async def test_a_lease_goes_once_its_node_is_gone(cluster: FakeCluster) -> None:
    cluster.nodes.join("alive", "aws:///a/i-1")
    cluster.inventory.lease("alive", owner="uid-alive")
    cluster.inventory.lease("bare")
    cluster.nodes.join("bare", "aws:///a/i-2")
    cluster.inventory.lease("left")
    cluster.inventory.lease("left-with-owner", owner="uid-of-a-node-that-is-gone")
    done = await run_collection(cluster.kubernetes.collect_leases)
    assert (done.checked, done.collected, done.failed) == (4, 2, 0)
    assert sorted(cluster.inventory.known_leases) == ["alive", "bare"]


async def test_a_lease_that_somebody_renews_stays(cluster: FakeCluster) -> None:
    """The kubelet's first Lease comes before its Node."""
    cluster.inventory.lease("about-to-join", renewed_ago=30)
    assert (await run_collection(cluster.kubernetes.collect_leases)).collected == 0


async def test_a_lease_that_is_owned_by_a_node_of_another_name_stays(cluster: FakeCluster) -> None:
    cluster.nodes.join("renamed", "aws:///a/i-1")
    cluster.inventory.lease("old-name", owner="uid-renamed")
    assert (await run_collection(cluster.kubernetes.collect_leases)).collected == 0


async def test_a_node_that_comes_while_leases_are_read_keeps_its_lease(cluster: FakeCluster) -> None:
    cluster.inventory.lease("back")
    lists = cluster.inventory.list_nodes

    async def one_step_behind() -> object:
        before = await lists()
        cluster.nodes.join("back", "aws:///a/i-1")
        return before

    cluster.inventory.list_nodes = one_step_behind  # type: ignore[assignment, method-assign]
    assert (await run_collection(cluster.kubernetes.collect_leases)).collected == 0


async def test_a_lease_that_cannot_be_read_again_hurts_no_other(cluster: FakeCluster) -> None:
    for name in ("one", "two", "three"):
        cluster.inventory.lease(name)
    cluster.inventory.faults["node_lease"] = [TryLater("timed out")]
    done = await run_collection(cluster.kubernetes.collect_leases)
    assert (done.collected, done.failed) == (2, 1)
    assert "timed out" in done.notes[0]


async def test_a_lease_that_was_renewed_since_it_was_judged_stays(cluster: FakeCluster) -> None:
    cluster.inventory.lease("renewed")
    delete = cluster.inventory.delete_lease

    async def too_late(lease: InventoryLease) -> bool:
        cluster.inventory.lease("renewed", renewed_ago=0)
        return await delete(lease)

    cluster.inventory.delete_lease = too_late  # type: ignore[method-assign]
    assert (await run_collection(cluster.kubernetes.collect_leases)).collected == 0
    assert "renewed" in cluster.inventory.known_leases
