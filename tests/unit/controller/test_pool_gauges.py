"""What NodePools have and may have, in Karpenter's names and units; and back to nothing."""

from typing import Any, cast

from temporalio.common import MetricMeter

from tenure.controller.metrics.nodepools import LIMIT, USAGE, PoolGauges
from tests.support.controller.builders import World, claim, pool
from tests.unit.controller.test_offering_gauges import Meter


class Stage(World):
    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()
        self.gauges = PoolGauges(self.caches, cast(MetricMeter, self.meter))

    def news(self) -> list[Any]:
        self.gauges.look(self.caches.take_dirty())
        return self.meter.news()


def test_a_pool_uses_what_its_launched_nodes_have() -> None:
    stage = Stage()
    stage.hear("nodeclaims", claim("a", phase="Launched"), claim("b", phase="Initialized"), claim("c"))
    stage.hear("nodeclaims", claim("d", phase="Initialized", pool="gpu"))
    assert stage.news() == [
        (USAGE, ("general", "cpu"), 4.0),
        (USAGE, ("general", "nodes"), 2),
        (USAGE, ("gpu", "cpu"), 2.0),
        (USAGE, ("gpu", "nodes"), 1),
    ]
    assert stage.news() == []


def test_a_node_that_changes_is_counted_once_and_one_that_is_gone_no_more() -> None:
    stage = Stage()
    stage.hear("nodeclaims", claim("a", phase="Launched"), claim("b", phase="Launched"))
    stage.news()
    bigger = claim("a", phase="Registered")
    bigger["status"]["capacity"] = {"cpu": "3500m", "ephemeral-storage": "20Gi"}
    stage.hear("nodeclaims", bigger)
    assert stage.news() == [(USAGE, ("general", "cpu"), 5.5), (USAGE, ("general", "ephemeral_storage"), 20 << 30)]
    stage.lose("nodeclaims", bigger)
    assert stage.news() == [
        (USAGE, ("general", "cpu"), 2.0),
        (USAGE, ("general", "ephemeral_storage"), 0),
        (USAGE, ("general", "nodes"), 1),
    ]
    stage.gauges.close()
    assert {value for _, _, value in stage.meter.news()} == {0}


def test_limits_are_told_and_those_that_are_taken_off_go_back_to_nothing() -> None:
    stage = Stage()
    stage.hear("nodepools", pool(limits={"cpu": "500m", "nodes": "10"}))
    assert stage.news() == [(LIMIT, ("general", "cpu"), 0.5), (LIMIT, ("general", "nodes"), 10)]
    stage.hear("nodepools", pool(limits={"nodes": "10"}))
    assert stage.news() == [(LIMIT, ("general", "cpu"), 0)]
    stage.lose("nodepools", pool())
    assert stage.news() == [(LIMIT, ("general", "nodes"), 0)]
