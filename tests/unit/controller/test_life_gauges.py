"""Gauges of NodeClaims: phases, what pools cost, drains that wait, what is paused; and back to nothing."""

from typing import Any, cast

from temporalio.common import MetricMeter

from tenure.controller.cluster_pause import ClusterBrake
from tenure.controller.metrics.nodeclaims import NODES, PAUSED, WAITING, LifeGauges
from tenure.kube.client.list_watch import Delta
from tests.support.controller.builders import World, claim
from tests.unit.controller.test_offering_gauges import Meter

LABELS = {
    "karpenter.sh/nodepool": "general",
    "node.kubernetes.io/instance-type": "m5.large",
    "karpenter.sh/capacity-type": "spot",
    "topology.kubernetes.io/zone": "a",
}


class Stage(World):
    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()
        self.brake = ClusterBrake("tenure", self.caches)
        self.gauges = LifeGauges(self.caches, self.brake, cast(MetricMeter, self.meter))

    def news(self) -> list[Any]:
        self.gauges.look(self.caches.take_dirty())
        return self.meter.news()


def drains(name: str, **condition: str) -> Any:
    raw = claim(name, phase="Initialized", deleting=True, labels=LABELS)
    raw["status"]["conditions"] += [{"type": "Drained", "status": "Unknown", "reason": "Draining", **condition}]
    return raw


def test_nodes_are_counted_by_the_phase_that_their_conditions_tell() -> None:
    stage = Stage()
    stage.hear("nodeclaims", claim("a"), claim("b", phase="Launched"), claim("c", phase="Registered"))
    stage.hear("nodeclaims", claim("d", phase="Initialized"), claim("e", phase="Initialized", deleting=True))
    phases = ("Drain", "Initialization", "Launch", "Ready", "Registration")
    assert stage.news() == [(NODES, (phase, "general", ""), 1) for phase in phases]
    stage.lose("nodeclaims", claim("e"))
    stage.hear("nodeclaims", claim("a", phase="Launched"))
    assert stage.news() == [
        (NODES, ("Drain", "general", ""), 0),
        (NODES, ("Launch", "general", ""), 0),
        (NODES, ("Registration", "general", ""), 2),
    ]
    assert stage.news() == []
    stage.gauges.close()
    assert {value for _, _, value in stage.meter.news()} == {0}


def test_a_drain_waits_when_its_condition_says_for_what() -> None:
    stage = Stage()
    stage.hear("nodeclaims", drains("a"), drains("b", message="pod default/web: budget web allows 0"))
    assert [one for one in stage.news() if one[0] == WAITING] == [(WAITING, ("general",), 1)]
    stage.hear("nodeclaims", drains("b"))
    assert [one for one in stage.news() if one[0] == WAITING] == [(WAITING, ("general",), 0)]


def test_what_is_paused_is_counted_by_its_kind() -> None:
    stage = Stage()
    stage.hear("nodeclaims", claim("a", annotations={"tenure.sh/pause": "by ops"}), claim("b"))
    assert (PAUSED, ("NodeClaim",), 1) in stage.news()
    namespace = {"metadata": {"name": "tenure", "annotations": {"tenure.sh/pause": "by ops"}}}
    stage.brake.hear([Delta(object=namespace)])
    dirty = stage.caches.take_dirty()
    stage.brake.look(dirty)
    stage.hear("nodeclaims", claim("b", phase="Launched"))
    assert (PAUSED, ("Cluster",), 1) in stage.news()
