"""A pause on its object: the annotation, and the event."""

from typing import Any

from activities.nodeclaim.annotations import AnnotationActivities
from tenure.apis.labels import PAUSE
from tenure.model.operator_requests import PauseAnnotationRequest
from tests.unit.activities.builders import FakeCluster, run_activity

TEXT = "until=2026-06-01T18:00:00Z, by=ann, reason=why"
EVENT: dict[str, Any] = {"event": "DisruptionPaused", "message": "is paused"}


async def sync_pause(cluster: FakeCluster, **fields: Any) -> None:
    activities = AnnotationActivities(cluster.made)
    await run_activity(activities.sync_pause_annotation, PauseAnnotationRequest.model_validate(fields))


def pause_annotation(cluster: FakeCluster) -> str | None:
    found: str | None = cluster.claims.found["a"]["metadata"]["annotations"].get(PAUSE)
    return found


async def test_a_pause_of_the_cluster_stands_on_the_workers_namespace(cluster: FakeCluster) -> None:
    await sync_pause(cluster, kind="Cluster", text=TEXT, **EVENT)
    assert cluster.namespaces.found == {"tenure": {PAUSE: TEXT}}
    assert cluster.events.published == [("tenure", "DisruptionPaused", "is paused")]
    await sync_pause(cluster, kind="Cluster")
    assert cluster.namespaces.found == {"tenure": {}}


async def test_that_of_a_node_is_on_its_claim_and_goes_from_both(cluster: FakeCluster) -> None:
    cluster.add_running_node(annotations={PAUSE: "another"})
    target = {"kind": "NodeClaim", "name": "a", "uid": "uid-a", "node_name": "node-a"}
    await sync_pause(cluster, **target, text=TEXT)
    assert pause_annotation(cluster) == TEXT and cluster.nodes.found["node-a"].annotations == {}
    await cluster.nodes.patch_annotations("node-a", {PAUSE: TEXT})
    await sync_pause(cluster, **target)
    assert pause_annotation(cluster) is None and cluster.nodes.found["node-a"].annotations == {}


async def test_one_that_is_over_is_taken_off_only_as_it_is_known(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await cluster.claims.patch_annotations("a", {PAUSE: "prolonged"})
    target = {"kind": "NodeClaim", "name": "a", "uid": "uid-a"}
    await sync_pause(cluster, **target, only=TEXT)
    assert pause_annotation(cluster) == "prolonged"
    await sync_pause(cluster, **target, only="prolonged")
    assert pause_annotation(cluster) is None


async def test_what_a_person_wrote_is_told_of_and_left_as_it_is(cluster: FakeCluster) -> None:
    cluster.pools.add("gpu")
    await cluster.pools.patch_annotations("gpu", {PAUSE: "until tomorrow"})
    await sync_pause(cluster, kind="NodePool", name="gpu", write=False, **EVENT)
    assert cluster.pools.found["gpu"].metadata.annotations == {PAUSE: "until tomorrow"}
    assert cluster.events.reasons_for("gpu") == ["DisruptionPaused"]


async def test_a_claim_of_another_uid_and_one_that_is_gone_are_left_alone(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await sync_pause(cluster, kind="NodeClaim", name="a", uid="an earlier one", text=TEXT, **EVENT)
    await sync_pause(cluster, kind="NodeClaim", name="gone", uid="uid-gone", text=TEXT, **EVENT)
    assert pause_annotation(cluster) is None and cluster.events.published == []
