"""Instances whose Node has joined get their names, once, and whoever may not be tagged stops nobody else."""

import pytest

from tenure.apis import labels
from tenure.model.errors import Forbidden, TryLater
from tests.unit.activities.garbage_collection.fake_cluster import CLUSTER, GarbageCollectionCluster, run_collection

DONE = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}


@pytest.fixture
def fake_cluster() -> GarbageCollectionCluster:
    return GarbageCollectionCluster()


def annotations(fake_cluster: GarbageCollectionCluster, name: str) -> dict[str, str]:
    found: dict[str, str] = fake_cluster.claims.found[name]["metadata"]["annotations"]
    return found


async def test_only_what_is_absent_is_written_and_only_once(fake_cluster: GarbageCollectionCluster) -> None:
    fake_cluster.add_nodeclaim("a", fake_cluster.add_instance("i-1"), node="node-a")
    fake_cluster.add_nodeclaim("b", fake_cluster.add_instance("i-2", claim="b", Name="a person's"), node="node-b")
    first = await run_collection(fake_cluster.tags.tag_instances)
    assert fake_cluster.orphaned_resources.tags_by_instance == {
        "i-1": {labels.TAG_NAME: "node-a", labels.TAG_NODECLAIM: "a"}
    }
    assert annotations(fake_cluster, "a") == annotations(fake_cluster, "b") == DONE
    assert (first.checked, first.collected) == (2, 1)
    assert (await run_collection(fake_cluster.tags.tag_instances)).checked == 0


async def test_an_instance_from_before_gets_the_clusters_name(fake_cluster: GarbageCollectionCluster) -> None:
    fake_cluster.add_nodeclaim("a", fake_cluster.add_instance("i-1", claim="a", Name="node-a"), node="node-a")
    facts = fake_cluster.found.running["i-1"]
    tags = {key: value for key, value in facts.tags.items() if key != labels.TAG_EKS_CLUSTER_NAME}
    fake_cluster.found.running["i-1"] = facts.model_copy(update={"tags": tags})
    await run_collection(fake_cluster.tags.tag_instances)
    assert fake_cluster.orphaned_resources.tags_by_instance == {"i-1": {labels.TAG_EKS_CLUSTER_NAME: CLUSTER}}


async def test_one_that_may_not_be_tagged_hurts_no_other_and_is_told(fake_cluster: GarbageCollectionCluster) -> None:
    for number in range(3):
        fake_cluster.add_nodeclaim(f"c{number}", fake_cluster.add_instance(f"i-{number}"), node=f"node-{number}")
    fake_cluster.orphaned_resources.faults["tag_instance"] = [Forbidden("not allowed", code="UnauthorizedOperation")]
    done = await run_collection(fake_cluster.tags.tag_instances)
    assert (done.collected, done.failed) == (2, 1)
    (rejected,) = [name for name in fake_cluster.claims.found if annotations(fake_cluster, name) != DONE]
    assert fake_cluster.events.reasons_for(rejected) == ["TaggingFailed"]


async def test_a_worker_that_may_tag_nothing_soon_stops_trying(fake_cluster: GarbageCollectionCluster) -> None:
    for number in range(50):
        fake_cluster.add_nodeclaim(f"c{number}", fake_cluster.add_instance(f"i-{number}"), node=f"node-{number}")
    fake_cluster.orphaned_resources.faults["tag_instance"] = [Forbidden("not allowed")] * 50
    assert (await run_collection(fake_cluster.tags.tag_instances)).failed == 5


async def test_a_nodeclaim_that_cannot_be_read_hurts_no_other(fake_cluster: GarbageCollectionCluster) -> None:
    fake_cluster.add_nodeclaim("odd", fake_cluster.add_instance("i-odd"), node="node-odd")
    fake_cluster.claims.found["odd"]["spec"]["requirements"] = "nonsense"
    fake_cluster.add_nodeclaim("well", fake_cluster.add_instance("i-well"), node="node-well")
    done = await run_collection(fake_cluster.tags.tag_instances)
    assert (done.collected, done.failed) == (2, 1)
    assert annotations(fake_cluster, "well") == DONE


async def test_an_instance_that_is_gone_is_not_marked_as_tagged(fake_cluster: GarbageCollectionCluster) -> None:
    fake_cluster.add_nodeclaim("a", "aws:///a/i-gone", node="node-a")
    assert (await run_collection(fake_cluster.tags.tag_instances)).collected == 0
    assert annotations(fake_cluster, "a") == {}


async def test_a_mark_that_could_not_be_written_is_written_by_the_next_run(
    fake_cluster: GarbageCollectionCluster,
) -> None:
    fake_cluster.add_nodeclaim("a", fake_cluster.add_instance("i-1"), node="node-a")
    fake_cluster.claims.faults["patch"] = [TryLater("no API server")]
    assert (await run_collection(fake_cluster.tags.tag_instances)).failed == 1
    await run_collection(fake_cluster.tags.tag_instances)
    assert annotations(fake_cluster, "a") == DONE
