"""Orphaned NodeClaims, Nodes and Leases are deleted; those with an instance or a Node that may exist are kept."""

import pytest

from tenure.apis.labels import NODEPOOL, REGISTERED_CONDITION, TERMINATION_FINALIZER
from tenure.model.errors import TryLater
from tenure.model.garbage_collection import InventoryLease
from tenure.model.nodeclaim.names import nodepool_owner_reference
from tests.unit.activities.builders import FakeCluster, run_collection, run_collection_twice

REGISTERED = {REGISTERED_CONDITION: "True"}


async def test_nodeclaim_without_instance_and_node_is_deleted(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("orphaned", "aws:///a/i-gone", **REGISTERED)
    cluster.add_nodeclaim("well", cluster.add_instance("i-there"), **REGISTERED)
    done = await run_collection_twice(cluster.kubernetes.collect_nodeclaims)
    assert list(cluster.claims.found) == ["well"]
    assert (done.checked, done.collected) == (2, 1)
    assert cluster.events.reasons_for("orphaned") == ["GarbageCollected"]


@pytest.mark.parametrize(("ready", "remaining"), [(True, ["orphaned"]), (False, [])])
async def test_ready_node_keeps_nodeclaim_without_listed_instance(
    cluster: FakeCluster, ready: bool, remaining: list[str]
) -> None:
    cluster.add_nodeclaim("orphaned", "aws:///a/i-gone", **REGISTERED)
    cluster.nodes.join("node", "aws:///a/i-gone", ready=ready)
    await run_collection_twice(cluster.kubernetes.collect_nodeclaims)
    assert list(cluster.claims.found) == remaining


async def test_nodeclaim_is_deleted_only_by_second_run(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("orphaned", "aws:///a/i-gone", **REGISTERED)
    done = await run_collection(cluster.kubernetes.collect_nodeclaims)
    assert (done.collected, done.suspects) == (0, ("uid-orphaned",))
    cluster.add_nodeclaim("another", "aws:///a/i-gone-too", **REGISTERED)
    assert (await run_collection(cluster.kubernetes.collect_nodeclaims, done.suspects)).suspects == ("uid-another",)
    assert list(cluster.claims.found) == ["another"]


async def test_nodeclaim_without_owner_gets_its_recreated_nodepool(cluster: FakeCluster) -> None:
    cluster.inventory.nodepool_uids["web"] = "uid-new"
    for name, pool in (("orphan", "web"), ("other", "gone"), ("owned", "web")):
        cluster.add_nodeclaim(name, cluster.add_instance(f"i-{name}"), **REGISTERED)
        cluster.claims.found[name]["metadata"]["labels"] = {NODEPOOL: pool}
    cluster.claims.found["owned"]["metadata"]["ownerReferences"] = [nodepool_owner_reference("web", "uid-new")]
    done = await run_collection(cluster.kubernetes.collect_nodeclaims)
    owners = {name: one["metadata"].get("ownerReferences") for name, one in cluster.claims.found.items()}
    reference = nodepool_owner_reference("web", "uid-new")
    assert owners == {"orphan": [reference], "owned": [reference], "other": None}
    assert done.collected == 1 and cluster.events.reasons_for("orphan") == ["OwnerRestored"]
    assert cluster.events.reasons_for("owned") == []


async def test_nodeclaim_with_invalid_provider_id_is_deleted(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("bogus", "nonsense", **REGISTERED)
    await run_collection_twice(cluster.kubernetes.collect_nodeclaims)
    assert cluster.claims.found == {}


async def test_untagged_instance_is_found_by_id(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("untagged", cluster.add_instance("i-there"), **REGISTERED)

    async def lists_nothing() -> list[object]:
        return []

    cluster.instances.list_managed = lists_nothing  # type: ignore[assignment, method-assign]
    assert (await run_collection_twice(cluster.kubernetes.collect_nodeclaims)).collected == 0


async def test_nodeclaim_with_failed_instance_lookup_is_kept(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("one", "aws:///a/i-1", **REGISTERED)
    cluster.add_nodeclaim("two", "aws:///a/i-2", **REGISTERED)
    cluster.instances.faults["get"] = [TryLater("not while a zone is shifted away from")]
    first = await run_collection(cluster.kubernetes.collect_nodeclaims)
    assert (first.failed, len(first.suspects)) == (1, 1)
    assert (await run_collection(cluster.kubernetes.collect_nodeclaims, first.suspects)).collected == 1
    assert len(cluster.claims.found) == 1


async def test_orphaned_node_is_deleted_with_its_finalizer(cluster: FakeCluster) -> None:
    with_finalizer = {"finalizers": (TERMINATION_FINALIZER,)}
    cluster.nodes.join("stray", "aws:///a/i-gone", **with_finalizer)
    cluster.nodes.join("runs", cluster.add_instance("i-there"), **with_finalizer)
    cluster.nodes.join("somebody-elses", "aws:///a/i-other")
    cluster.add_nodeclaim("owner", "aws:///a/i-owned")
    cluster.nodes.join("owned", "aws:///a/i-owned", **with_finalizer)
    done = await run_collection(cluster.kubernetes.collect_nodes)
    assert sorted(cluster.nodes.found) == ["owned", "runs", "somebody-elses"]
    assert done.collected == 1


async def test_lease_without_node_is_deleted(cluster: FakeCluster) -> None:
    cluster.nodes.join("alive", "aws:///a/i-1")
    cluster.inventory.lease("alive", owner="uid-alive")
    cluster.inventory.lease("bare")
    cluster.nodes.join("bare", "aws:///a/i-2")
    cluster.inventory.lease("orphaned")
    cluster.inventory.lease("orphaned-with-owner", owner="uid-of-a-node-that-is-gone")
    done = await run_collection(cluster.kubernetes.collect_leases)
    assert (done.checked, done.collected, done.failed) == (4, 2, 0)
    assert sorted(cluster.inventory.known_leases) == ["alive", "bare"]


async def test_renewed_lease_is_kept(cluster: FakeCluster) -> None:
    """The kubelet creates its first Lease before its Node."""
    cluster.inventory.lease("about-to-join", renewed_ago=30)
    assert (await run_collection(cluster.kubernetes.collect_leases)).collected == 0


async def test_lease_owned_by_node_with_another_name_is_kept(cluster: FakeCluster) -> None:
    cluster.nodes.join("renamed", "aws:///a/i-1")
    cluster.inventory.lease("old-name", owner="uid-renamed")
    assert (await run_collection(cluster.kubernetes.collect_leases)).collected == 0


async def test_node_created_during_collection_keeps_its_lease(cluster: FakeCluster) -> None:
    cluster.inventory.lease("back")
    list_nodes = cluster.inventory.list_nodes

    async def list_before_join() -> object:
        before = await list_nodes()
        cluster.nodes.join("back", "aws:///a/i-1")
        return before

    cluster.inventory.list_nodes = list_before_join  # type: ignore[assignment, method-assign]
    assert (await run_collection(cluster.kubernetes.collect_leases)).collected == 0


async def test_failed_lease_read_does_not_affect_other_leases(cluster: FakeCluster) -> None:
    for name in ("one", "two", "three"):
        cluster.inventory.lease(name)
    cluster.inventory.faults["node_lease"] = [TryLater("timed out")]
    done = await run_collection(cluster.kubernetes.collect_leases)
    assert (done.collected, done.failed) == (2, 1)
    assert "timed out" in done.notes[0]


async def test_lease_renewed_before_deletion_is_kept(cluster: FakeCluster) -> None:
    cluster.inventory.lease("renewed")
    delete = cluster.inventory.delete_lease

    async def renew_and_delete(lease: InventoryLease) -> bool:
        cluster.inventory.lease("renewed", renewed_ago=0)
        return await delete(lease)

    cluster.inventory.delete_lease = renew_and_delete  # type: ignore[method-assign]
    assert (await run_collection(cluster.kubernetes.collect_leases)).collected == 0
    assert "renewed" in cluster.inventory.known_leases
