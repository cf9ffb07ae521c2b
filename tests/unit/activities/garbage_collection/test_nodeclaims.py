"""NodeClaims and Nodes whose instance is gone are put away; those whose instance runs, or may run, never."""

import pytest

from tenure.apis.labels import REGISTERED_CONDITION, TERMINATION_FINALIZER
from tenure.model.errors import TryLater
from tests.unit.activities.garbage_collection.fake_cluster import (
    GarbageCollectionCluster,
    run_collection,
    run_collection_twice,
)

JOINED = {REGISTERED_CONDITION: "True"}


@pytest.fixture
def fake_cluster() -> GarbageCollectionCluster:
    return GarbageCollectionCluster()


async def test_a_nodeclaim_whose_instance_and_node_are_gone_is_deleted_and_it_is_said(
    fake_cluster: GarbageCollectionCluster,
) -> None:
    fake_cluster.add_nodeclaim("bereft", "aws:///a/i-gone", **JOINED)
    fake_cluster.add_nodeclaim("well", fake_cluster.add_instance("i-there"), **JOINED)
    done = await run_collection_twice(fake_cluster.objects.collect_nodeclaims)
    assert list(fake_cluster.claims.found) == ["well"]
    assert (done.checked, done.collected) == (2, 1)
    assert fake_cluster.events.reasons_for("bereft") == ["GarbageCollected"]


@pytest.mark.parametrize(("ready", "left"), [(True, ["bereft"]), (False, [])])
async def test_a_node_that_is_ready_speaks_for_its_instance(
    fake_cluster: GarbageCollectionCluster, ready: bool, left: list[str]
) -> None:
    fake_cluster.add_nodeclaim("bereft", "aws:///a/i-gone", **JOINED)
    fake_cluster.nodes.join("node", "aws:///a/i-gone", ready=ready)
    await run_collection_twice(fake_cluster.objects.collect_nodeclaims)
    assert list(fake_cluster.claims.found) == left


async def test_a_nodeclaim_that_its_own_workflow_may_be_at_is_only_suspected(
    fake_cluster: GarbageCollectionCluster,
) -> None:
    fake_cluster.add_nodeclaim("bereft", "aws:///a/i-gone", **JOINED)
    done = await run_collection(fake_cluster.objects.collect_nodeclaims)
    assert (done.collected, done.suspects) == (0, ("uid-bereft",))
    fake_cluster.add_nodeclaim("another", "aws:///a/i-gone-too", **JOINED)
    assert (await run_collection(fake_cluster.objects.collect_nodeclaims, done.suspects)).suspects == ("uid-another",)
    assert list(fake_cluster.claims.found) == ["another"]


async def test_a_nodeclaim_with_a_provider_id_that_names_nothing_is_deleted(
    fake_cluster: GarbageCollectionCluster,
) -> None:
    fake_cluster.add_nodeclaim("bogus", "nonsense", **JOINED)
    await run_collection_twice(fake_cluster.objects.collect_nodeclaims)
    assert fake_cluster.claims.found == {}


async def test_an_instance_that_lost_its_tags_is_found_by_its_id(fake_cluster: GarbageCollectionCluster) -> None:
    fake_cluster.add_nodeclaim("untagged", fake_cluster.add_instance("i-there"), **JOINED)

    async def lists_nothing() -> list[object]:
        return []

    fake_cluster.found.list_managed = lists_nothing  # type: ignore[assignment, method-assign]
    assert (await run_collection_twice(fake_cluster.objects.collect_nodeclaims)).collected == 0


async def test_a_nodeclaim_whose_instance_cannot_be_looked_at_stays_and_hurts_no_other(
    fake_cluster: GarbageCollectionCluster,
) -> None:
    fake_cluster.add_nodeclaim("one", "aws:///a/i-1", **JOINED)
    fake_cluster.add_nodeclaim("two", "aws:///a/i-2", **JOINED)
    fake_cluster.found.faults["get"] = [TryLater("not while a zone is shifted away from")]
    first = await run_collection(fake_cluster.objects.collect_nodeclaims)
    assert (first.failed, len(first.suspects)) == (1, 1)
    assert (await run_collection(fake_cluster.objects.collect_nodeclaims, first.suspects)).collected == 1
    assert len(fake_cluster.claims.found) == 1


async def test_a_node_that_stayed_behind_goes_with_its_finalizer(fake_cluster: GarbageCollectionCluster) -> None:
    with_finalizer = {"finalizers": (TERMINATION_FINALIZER,)}
    fake_cluster.nodes.join("stray", "aws:///a/i-gone", **with_finalizer)
    fake_cluster.nodes.join("runs", fake_cluster.add_instance("i-there"), **with_finalizer)
    fake_cluster.nodes.join("somebody-elses", "aws:///a/i-other")
    fake_cluster.add_nodeclaim("owner", "aws:///a/i-owned")
    fake_cluster.nodes.join("owned", "aws:///a/i-owned", **with_finalizer)
    done = await run_collection(fake_cluster.objects.collect_nodes)
    assert sorted(fake_cluster.nodes.found) == ["owned", "runs", "somebody-elses"]
    assert done.collected == 1
