"""What NodePools have and may have, in Karpenter's names and units; and back to nothing."""

from typing import Any, cast

from temporalio.common import MetricMeter

from tenure.controller.metrics.nodepools import LIMIT, USAGE, NodePoolMetrics
from tests.support.controller.builders import CacheHarness, claim, pool
from tests.unit.controller.metrics.test_offerings import FakeMeter


class NodePoolMetricsHarness(CacheHarness):
    def __init__(self) -> None:
        super().__init__()
        self.meter = FakeMeter()
        self.gauges = NodePoolMetrics(self.cache, cast(MetricMeter, self.meter))

    def update_and_drain(self) -> list[Any]:
        self.gauges.update(self.cache.drain_changes())
        return self.meter.drain_records()


def test_a_pool_uses_what_its_launched_nodes_have() -> None:
    harness = NodePoolMetricsHarness()
    harness.apply_objects("nodeclaims", claim("a", phase="Launched"), claim("b", phase="Initialized"), claim("c"))
    harness.apply_objects("nodeclaims", claim("d", phase="Initialized", pool="gpu"))
    assert harness.update_and_drain() == [
        (USAGE, ("general", "cpu"), 4.0),
        (USAGE, ("general", "nodes"), 2),
        (USAGE, ("gpu", "cpu"), 2.0),
        (USAGE, ("gpu", "nodes"), 1),
    ]
    assert harness.update_and_drain() == []


def test_a_node_that_changes_is_counted_once_and_one_that_is_gone_no_more() -> None:
    harness = NodePoolMetricsHarness()
    harness.apply_objects("nodeclaims", claim("a", phase="Launched"), claim("b", phase="Launched"))
    harness.update_and_drain()
    bigger = claim("a", phase="Registered")
    bigger["status"]["capacity"] = {"cpu": "3500m", "ephemeral-storage": "20Gi"}
    harness.apply_objects("nodeclaims", bigger)
    assert harness.update_and_drain() == [
        (USAGE, ("general", "cpu"), 5.5),
        (USAGE, ("general", "ephemeral_storage"), 20 << 30),
    ]
    harness.delete_objects("nodeclaims", bigger)
    assert harness.update_and_drain() == [
        (USAGE, ("general", "cpu"), 2.0),
        (USAGE, ("general", "ephemeral_storage"), 0),
        (USAGE, ("general", "nodes"), 1),
    ]
    harness.gauges.close()
    assert {value for _, _, value in harness.meter.drain_records()} == {0}


def test_limits_are_told_and_those_that_are_taken_off_go_back_to_nothing() -> None:
    harness = NodePoolMetricsHarness()
    harness.apply_objects("nodepools", pool(limits={"cpu": "500m", "nodes": "10"}))
    assert harness.update_and_drain() == [(LIMIT, ("general", "cpu"), 0.5), (LIMIT, ("general", "nodes"), 10)]
    harness.apply_objects("nodepools", pool(limits={"nodes": "10"}))
    assert harness.update_and_drain() == [(LIMIT, ("general", "cpu"), 0)]
    harness.delete_objects("nodepools", pool())
    assert harness.update_and_drain() == [(LIMIT, ("general", "nodes"), 0)]
