"""The annotation and event of a pause on a Node, NodePool or cluster."""

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


async def test_cluster_pause_is_on_worker_namespace(cluster: FakeCluster) -> None:
    await sync_pause(cluster, kind="Cluster", text=TEXT, **EVENT)
    assert cluster.namespaces.found == {"tenure": {PAUSE: TEXT}}
    assert cluster.events.published == [("tenure", "DisruptionPaused", "is paused")]
    await sync_pause(cluster, kind="Cluster")
    assert cluster.namespaces.found == {"tenure": {}}


async def test_node_pause_is_on_nodeclaim_and_removed_from_both(cluster: FakeCluster) -> None:
    cluster.add_running_node(annotations={PAUSE: "another"})
    target = {"kind": "NodeClaim", "name": "a", "uid": "uid-a", "node_name": "node-a"}
    await sync_pause(cluster, **target, text=TEXT)
    assert pause_annotation(cluster) == TEXT and cluster.nodes.found["node-a"].annotations == {}
    await cluster.nodes.patch_annotations("node-a", {PAUSE: TEXT})
    await sync_pause(cluster, **target)
    assert pause_annotation(cluster) is None and cluster.nodes.found["node-a"].annotations == {}


async def test_ended_pause_is_removed_only_if_unchanged(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await cluster.claims.patch_annotations("a", {PAUSE: "prolonged"})
    target = {"kind": "NodeClaim", "name": "a", "uid": "uid-a"}
    await sync_pause(cluster, **target, only=TEXT)
    assert pause_annotation(cluster) == "prolonged"
    await sync_pause(cluster, **target, only="prolonged")
    assert pause_annotation(cluster) is None


async def test_manual_pause_annotation_is_published_and_kept(cluster: FakeCluster) -> None:
    cluster.pools.add("gpu")
    await cluster.pools.patch_annotations("gpu", {PAUSE: "until tomorrow"})
    await sync_pause(cluster, kind="NodePool", name="gpu", write=False, **EVENT)
    assert cluster.pools.found["gpu"].metadata.annotations == {PAUSE: "until tomorrow"}
    assert cluster.events.reasons_for("gpu") == ["DisruptionPaused"]


async def test_manual_pause_annotation_of_a_node_is_kept(cluster: FakeCluster) -> None:
    cluster.add_running_node(annotations={PAUSE: "until tomorrow"})
    await sync_pause(cluster, kind="NodeClaim", name="a", uid="uid-a", node_name="node-a", write=False, **EVENT)
    assert cluster.nodes.found["node-a"].annotations == {PAUSE: "until tomorrow"}


async def test_recreated_and_missing_nodeclaims_are_ignored(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await sync_pause(cluster, kind="NodeClaim", name="a", uid="an earlier one", text=TEXT, **EVENT)
    await sync_pause(cluster, kind="NodeClaim", name="gone", uid="uid-gone", text=TEXT, **EVENT)
    assert pause_annotation(cluster) is None and cluster.events.published == []
