"""A pause on its object: the annotation, and the event."""

from typing import Any

import pytest

from activities.nodeclaim.annotations import PauseActivities
from tenure.apis.labels import PAUSE
from tenure.model.operator_requests import PauseAnnotationRequest
from tests.support.fakes.kubernetes import FakeNamespaces
from tests.unit.activities.builders import FakeCluster, run_activity

TEXT = "until=2026-06-01T18:00:00Z, by=ann, reason=why"
EVENT: dict[str, Any] = {"event": "DisruptionPaused", "message": "is paused"}


class PauseSync:
    def __init__(self, cluster: FakeCluster) -> None:
        self.namespaces = FakeNamespaces()
        self.activities = PauseActivities(
            claims=cluster.claims,
            nodes=cluster.nodes,
            pools=cluster.pools,
            namespaces=self.namespaces,
            events=cluster.events,
            namespace="tenure",
        )

    async def sync(self, **fields: Any) -> None:
        await run_activity(self.activities.sync_pause_annotation, PauseAnnotationRequest.model_validate(fields))


@pytest.fixture
def pause_sync(cluster: FakeCluster) -> PauseSync:
    return PauseSync(cluster)


def pause_annotation(cluster: FakeCluster) -> str | None:
    found: str | None = cluster.claims.found["a"]["metadata"]["annotations"].get(PAUSE)
    return found


async def test_a_pause_of_the_cluster_stands_on_the_workers_namespace(
    cluster: FakeCluster, pause_sync: PauseSync
) -> None:
    await pause_sync.sync(kind="Cluster", text=TEXT, **EVENT)
    assert pause_sync.namespaces.found == {"tenure": {PAUSE: TEXT}}
    assert cluster.events.published == [("tenure", "DisruptionPaused", "is paused")]
    await pause_sync.sync(kind="Cluster")
    assert pause_sync.namespaces.found == {"tenure": {}}


async def test_that_of_a_node_is_on_its_claim_and_goes_from_both(cluster: FakeCluster, pause_sync: PauseSync) -> None:
    cluster.add_running_node(annotations={PAUSE: "another"})
    target = {"kind": "NodeClaim", "name": "a", "uid": "uid-a", "node_name": "node-a"}
    await pause_sync.sync(**target, text=TEXT)
    assert pause_annotation(cluster) == TEXT and cluster.nodes.found["node-a"].annotations == {}
    await cluster.nodes.patch_annotations("node-a", {PAUSE: TEXT})
    await pause_sync.sync(**target)
    assert pause_annotation(cluster) is None and cluster.nodes.found["node-a"].annotations == {}


async def test_one_that_is_over_is_taken_off_only_as_it_is_known(cluster: FakeCluster, pause_sync: PauseSync) -> None:
    cluster.add_running_node()
    await cluster.claims.patch_annotations("a", {PAUSE: "prolonged"})
    target = {"kind": "NodeClaim", "name": "a", "uid": "uid-a"}
    await pause_sync.sync(**target, only=TEXT)
    assert pause_annotation(cluster) == "prolonged"
    await pause_sync.sync(**target, only="prolonged")
    assert pause_annotation(cluster) is None


async def test_what_a_person_wrote_is_told_of_and_left_as_it_is(cluster: FakeCluster, pause_sync: PauseSync) -> None:
    cluster.pools.add("gpu")
    await cluster.pools.patch_annotations("gpu", {PAUSE: "until tomorrow"})
    await pause_sync.sync(kind="NodePool", name="gpu", write=False, **EVENT)
    assert cluster.pools.found["gpu"].metadata.annotations == {PAUSE: "until tomorrow"}
    assert cluster.events.reasons_for("gpu") == ["DisruptionPaused"]


async def test_a_claim_of_another_uid_and_one_that_is_gone_are_left_alone(
    cluster: FakeCluster, pause_sync: PauseSync
) -> None:
    cluster.add_running_node()
    await pause_sync.sync(kind="NodeClaim", name="a", uid="an earlier one", text=TEXT, **EVENT)
    await pause_sync.sync(kind="NodeClaim", name="gone", uid="uid-gone", text=TEXT, **EVENT)
    assert pause_annotation(cluster) is None and cluster.events.published == []
