"""NodeClaims, Nodes and Leases that are left over are deleted; those of instances or Nodes that may live, never."""

import pytest

from tenure.apis.labels import REGISTERED_CONDITION, TERMINATION_FINALIZER
from tenure.model.errors import TryLater
from tenure.model.garbage_collection import InventoryLease
from tests.unit.activities.builders import FakeCluster, run_collection, run_collection_twice

JOINED = {REGISTERED_CONDITION: "True"}


async def test_a_nodeclaim_whose_instance_and_node_are_gone_is_deleted_and_it_is_said(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("bereft", "aws:///a/i-gone", **JOINED)
    cluster.add_nodeclaim("well", cluster.add_instance("i-there"), **JOINED)
    done = await run_collection_twice(cluster.kubernetes.collect_nodeclaims)
    assert list(cluster.claims.found) == ["well"]
    assert (done.checked, done.collected) == (2, 1)
    assert cluster.events.reasons_for("bereft") == ["GarbageCollected"]


@pytest.mark.parametrize(("ready", "left"), [(True, ["bereft"]), (False, [])])
async def test_a_node_that_is_ready_speaks_for_its_instance(cluster: FakeCluster, ready: bool, left: list[str]) -> None:
    cluster.add_nodeclaim("bereft", "aws:///a/i-gone", **JOINED)
    cluster.nodes.join("node", "aws:///a/i-gone", ready=ready)
    await run_collection_twice(cluster.kubernetes.collect_nodeclaims)
    assert list(cluster.claims.found) == left


async def test_a_nodeclaim_that_its_own_workflow_may_be_at_is_only_suspected(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("bereft", "aws:///a/i-gone", **JOINED)
    done = await run_collection(cluster.kubernetes.collect_nodeclaims)
    assert (done.collected, done.suspects) == (0, ("uid-bereft",))
    cluster.add_nodeclaim("another", "aws:///a/i-gone-too", **JOINED)
    assert (await run_collection(cluster.kubernetes.collect_nodeclaims, done.suspects)).suspects == ("uid-another",)
    assert list(cluster.claims.found) == ["another"]


async def test_a_nodeclaim_with_a_provider_id_that_names_nothing_is_deleted(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("bogus", "nonsense", **JOINED)
    await run_collection_twice(cluster.kubernetes.collect_nodeclaims)
    assert cluster.claims.found == {}


async def test_an_instance_that_lost_its_tags_is_found_by_its_id(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("untagged", cluster.add_instance("i-there"), **JOINED)

    async def lists_nothing() -> list[object]:
        return []

    cluster.instances.list_managed = lists_nothing  # type: ignore[assignment, method-assign]
    assert (await run_collection_twice(cluster.kubernetes.collect_nodeclaims)).collected == 0


async def test_a_nodeclaim_whose_instance_cannot_be_looked_at_stays_and_hurts_no_other(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("one", "aws:///a/i-1", **JOINED)
    cluster.add_nodeclaim("two", "aws:///a/i-2", **JOINED)
    cluster.instances.faults["get"] = [TryLater("not while a zone is shifted away from")]
    first = await run_collection(cluster.kubernetes.collect_nodeclaims)
    assert (first.failed, len(first.suspects)) == (1, 1)
    assert (await run_collection(cluster.kubernetes.collect_nodeclaims, first.suspects)).collected == 1
    assert len(cluster.claims.found) == 1


async def test_a_node_that_stayed_behind_goes_with_its_finalizer(cluster: FakeCluster) -> None:
    with_finalizer = {"finalizers": (TERMINATION_FINALIZER,)}
    cluster.nodes.join("stray", "aws:///a/i-gone", **with_finalizer)
    cluster.nodes.join("runs", cluster.add_instance("i-there"), **with_finalizer)
    cluster.nodes.join("somebody-elses", "aws:///a/i-other")
    cluster.add_nodeclaim("owner", "aws:///a/i-owned")
    cluster.nodes.join("owned", "aws:///a/i-owned", **with_finalizer)
    done = await run_collection(cluster.kubernetes.collect_nodes)
    assert sorted(cluster.nodes.found) == ["owned", "runs", "somebody-elses"]
    assert done.collected == 1


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
