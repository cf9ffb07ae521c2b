"""Pause annotations of the worker's namespace, of NodePools, NodeClaims and Nodes."""

from typing import Any

from tenure.apis.labels import PAUSE
from tenure.controller.cache.changes import ChangeSet
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.signals.digests import NodeClaimView, nodeclaim_digest, nodepool_digest
from tenure.kube.client.list_watch import Delta
from tenure.kube.facts.objects import nodepool_fact
from tenure.model.operator_requests import ObservedPause
from tests.support.controller import builders
from tests.support.controller.builders import NOW, claim_fact, node_fact
from tests.unit.controller.fake_temporal import RecordingSignalQueue

TEXT = "until=2026-06-01T18:00:00Z, by=ann, reason=why"


def namespace(name: str, text: str = "", *, deleted: bool = False) -> Delta:
    metadata: dict[str, Any] = {"name": name, **({"annotations": {PAUSE: text}} if text else {})}
    return Delta(object={"metadata": metadata}, is_deleted=deleted)


def make_cache(*pools: str) -> ClusterCache:
    cache = ClusterCache(lambda: NOW)
    cache.on_deltas("nodepools", [Delta(object=builders.pool(name), is_deleted=False) for name in pools])
    cache.drain_changes()
    return cache


def test_only_the_worker_namespace_pauses_and_requeues_all_nodepools() -> None:
    cluster_pause = ClusterPause("tenure", make_cache("a", "b"))
    cluster_pause.on_deltas([namespace("default", TEXT)])
    changes = ChangeSet()
    cluster_pause.requeue_nodepools(changes)
    assert cluster_pause.text == "" and changes.nodepools == set()
    cluster_pause.on_deltas([namespace("tenure", TEXT)])
    cluster_pause.requeue_nodepools(changes)
    assert cluster_pause.text == TEXT and changes.nodepools == {"a", "b"}
    later_changes = ChangeSet()
    cluster_pause.requeue_nodepools(later_changes)
    assert later_changes.nodepools == set()
    cluster_pause.on_deltas([namespace("tenure", deleted=True)])
    assert cluster_pause.text == ""


def test_cluster_workflow_is_signaled_only_on_changes() -> None:
    cluster_pause, signal_queue = ClusterPause("tenure", make_cache()), RecordingSignalQueue()
    cluster_pause.notify("demo", signal_queue, 1)
    assert signal_queue.signals == []
    cluster_pause.on_deltas([namespace("tenure", TEXT)])
    cluster_pause.notify("demo", signal_queue, 2)
    cluster_pause.notify("demo", signal_queue, 3)
    cluster_pause.on_deltas([namespace("tenure")])
    cluster_pause.notify("demo", signal_queue, 4)
    assert [(one.workflow_id, one.name, one.argument) for one in signal_queue.signals] == [
        ("demo/cluster", "observe_pause", ObservedPause(number=2, text=TEXT)),
        ("demo/cluster", "observe_pause", ObservedPause(number=4, text="")),
    ]


def test_pause_annotation_of_a_nodepool_is_in_its_digest() -> None:
    pool = builders.pool("a")
    pool["metadata"]["annotations"] = {PAUSE: TEXT}
    cache = ClusterCache(lambda: NOW)
    cache.on_deltas("nodepools", [Delta(object=pool, is_deleted=False)])
    assert cache.nodepools["a"].pause == TEXT
    observed = nodepool_digest(nodepool_fact(pool), [], None, pauses=(TEXT, "another"))
    assert (observed.pause, observed.cluster_pause) == (TEXT, "another")


def test_pause_of_a_nodeclaim_precedes_its_node_and_lasts_until_deletion() -> None:
    paused, other = claim_fact(annotations={PAUSE: TEXT}), claim_fact()
    node = node_fact(annotations={PAUSE: "the node's"})
    assert nodeclaim_digest(NodeClaimView(claim=paused, nodes=(node,)), NOW).observed.pause == TEXT
    assert nodeclaim_digest(NodeClaimView(claim=other, nodes=(node,)), NOW).observed.pause == "the node's"
    assert nodeclaim_digest(NodeClaimView(claim=other), NOW).observed.pause == ""
    terminating = claim_fact(annotations={PAUSE: TEXT}, deleting=True)
    assert nodeclaim_digest(NodeClaimView(claim=terminating), NOW).observed.pause == TEXT
