"""Gauges of NodeClaims: phases, what pools cost, drains that wait, what is paused; and back to nothing."""

from typing import Any, cast

from temporalio.common import MetricMeter

from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.metrics.nodeclaims import NODES, PAUSED, WAITING, NodeClaimMetrics
from tenure.kube.client.list_watch import Delta
from tests.support.controller.builders import CacheHarness, claim
from tests.unit.controller.metrics.test_offerings import FakeMeter

LABELS = {
    "karpenter.sh/nodepool": "general",
    "node.kubernetes.io/instance-type": "m5.large",
    "karpenter.sh/capacity-type": "spot",
    "topology.kubernetes.io/zone": "a",
}


class NodeClaimMetricsHarness(CacheHarness):
    def __init__(self) -> None:
        super().__init__()
        self.meter = FakeMeter()
        self.cluster_pause = ClusterPause("tenure", self.cache)
        self.gauges = NodeClaimMetrics(self.cache, self.cluster_pause, cast(MetricMeter, self.meter))

    def update_and_drain(self) -> list[Any]:
        self.gauges.update(self.cache.drain_changes())
        return self.meter.drain_records()


def draining_nodeclaim(name: str, **condition: str) -> Any:
    raw = claim(name, phase="Initialized", deleting=True, labels=LABELS)
    raw["status"]["conditions"] += [{"type": "Drained", "status": "Unknown", "reason": "Draining", **condition}]
    return raw


def test_nodes_are_counted_by_the_phase_that_their_conditions_tell() -> None:
    harness = NodeClaimMetricsHarness()
    harness.apply_objects("nodeclaims", claim("a"), claim("b", phase="Launched"), claim("c", phase="Registered"))
    harness.apply_objects("nodeclaims", claim("d", phase="Initialized"), claim("e", phase="Initialized", deleting=True))
    phases = ("Drain", "Initialization", "Launch", "Ready", "Registration")
    assert harness.update_and_drain() == [(NODES, (phase, "general", ""), 1) for phase in phases]
    harness.delete_objects("nodeclaims", claim("e"))
    harness.apply_objects("nodeclaims", claim("a", phase="Launched"))
    assert harness.update_and_drain() == [
        (NODES, ("Drain", "general", ""), 0),
        (NODES, ("Launch", "general", ""), 0),
        (NODES, ("Registration", "general", ""), 2),
    ]
    assert harness.update_and_drain() == []
    harness.gauges.close()
    assert {value for _, _, value in harness.meter.drain_records()} == {0}


def test_a_drain_waits_when_its_condition_says_for_what() -> None:
    harness = NodeClaimMetricsHarness()
    harness.apply_objects(
        "nodeclaims", draining_nodeclaim("a"), draining_nodeclaim("b", message="pod default/web: budget web allows 0")
    )
    assert [one for one in harness.update_and_drain() if one[0] == WAITING] == [(WAITING, ("general",), 1)]
    harness.apply_objects("nodeclaims", draining_nodeclaim("b"))
    assert [one for one in harness.update_and_drain() if one[0] == WAITING] == [(WAITING, ("general",), 0)]


def test_what_is_paused_is_counted_by_its_kind() -> None:
    harness = NodeClaimMetricsHarness()
    harness.apply_objects("nodeclaims", claim("a", annotations={"tenure.sh/pause": "by ops"}), claim("b"))
    assert (PAUSED, ("NodeClaim",), 1) in harness.update_and_drain()
    namespace = {"metadata": {"name": "tenure", "annotations": {"tenure.sh/pause": "by ops"}}}
    harness.cluster_pause.on_deltas([Delta(object=namespace)])
    changes = harness.cache.drain_changes()
    harness.cluster_pause.requeue_nodepools(changes)
    harness.apply_objects("nodeclaims", claim("b", phase="Launched"))
    assert (PAUSED, ("Cluster",), 1) in harness.update_and_drain()
