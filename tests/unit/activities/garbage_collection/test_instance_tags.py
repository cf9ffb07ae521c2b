"""Instances whose Node has joined get their names, once, and whoever may not be tagged stops nobody else."""

from tenure.apis import labels
from tenure.model.errors import Forbidden, TryLater
from tests.unit.activities.builders import CLUSTER, FakeCluster, run_collection

DONE = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}


def annotations(cluster: FakeCluster, name: str) -> dict[str, str]:
    found: dict[str, str] = cluster.claims.found[name]["metadata"]["annotations"]
    return found


async def test_only_what_is_absent_is_written_and_only_once(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", cluster.add_instance("i-1"), node="node-a")
    cluster.add_nodeclaim("b", cluster.add_instance("i-2", claim="b", Name="a person's"), node="node-b")
    first = await run_collection(cluster.aws.tag_instances)
    assert cluster.orphaned_resources.tags_by_instance == {
        "i-1": {labels.TAG_NAME: "node-a", labels.TAG_NODECLAIM: "a"}
    }
    assert annotations(cluster, "a") == annotations(cluster, "b") == DONE
    assert (first.checked, first.collected) == (2, 1)
    assert (await run_collection(cluster.aws.tag_instances)).checked == 0


async def test_an_instance_from_before_gets_the_clusters_name(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", cluster.add_instance("i-1", claim="a", Name="node-a"), node="node-a")
    facts = cluster.instances.running["i-1"]
    tags = {key: value for key, value in facts.tags.items() if key != labels.TAG_EKS_CLUSTER_NAME}
    cluster.instances.running["i-1"] = facts.model_copy(update={"tags": tags})
    await run_collection(cluster.aws.tag_instances)
    assert cluster.orphaned_resources.tags_by_instance == {"i-1": {labels.TAG_EKS_CLUSTER_NAME: CLUSTER}}


async def test_one_that_may_not_be_tagged_hurts_no_other_and_is_told(cluster: FakeCluster) -> None:
    for number in range(3):
        cluster.add_nodeclaim(f"c{number}", cluster.add_instance(f"i-{number}"), node=f"node-{number}")
    cluster.orphaned_resources.faults["tag_instance"] = [Forbidden("not allowed", code="UnauthorizedOperation")]
    done = await run_collection(cluster.aws.tag_instances)
    assert (done.collected, done.failed) == (2, 1)
    (rejected,) = [name for name in cluster.claims.found if annotations(cluster, name) != DONE]
    assert cluster.events.reasons_for(rejected) == ["TaggingFailed"]


async def test_a_worker_that_may_tag_nothing_soon_stops_trying(cluster: FakeCluster) -> None:
    for number in range(50):
        cluster.add_nodeclaim(f"c{number}", cluster.add_instance(f"i-{number}"), node=f"node-{number}")
    cluster.orphaned_resources.faults["tag_instance"] = [Forbidden("not allowed")] * 50
    assert (await run_collection(cluster.aws.tag_instances)).failed == 5


async def test_a_nodeclaim_that_cannot_be_read_hurts_no_other(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("odd", cluster.add_instance("i-odd"), node="node-odd")
    cluster.claims.found["odd"]["spec"]["requirements"] = "nonsense"
    cluster.add_nodeclaim("well", cluster.add_instance("i-well"), node="node-well")
    done = await run_collection(cluster.aws.tag_instances)
    assert (done.collected, done.failed) == (2, 1)
    assert annotations(cluster, "well") == DONE


async def test_an_instance_that_is_gone_is_not_marked_as_tagged(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", "aws:///a/i-gone", node="node-a")
    assert (await run_collection(cluster.aws.tag_instances)).collected == 0
    assert annotations(cluster, "a") == {}


async def test_a_mark_that_could_not_be_written_is_written_by_the_next_run(cluster: FakeCluster) -> None:
    cluster.add_nodeclaim("a", cluster.add_instance("i-1"), node="node-a")
    cluster.claims.faults["patch"] = [TryLater("no API server")]
    assert (await run_collection(cluster.aws.tag_instances)).failed == 1
    await run_collection(cluster.aws.tag_instances)
    assert annotations(cluster, "a") == DONE
