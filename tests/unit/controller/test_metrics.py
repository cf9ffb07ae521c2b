"""Gauges of the cluster and of disruption passes: only changes are recorded, and removed label values become 0."""

from typing import Any

import pytest

from tenure import metrics
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.disruption.controller import DisruptionPass
from tenure.controller.metrics import DisruptionMetrics, NodeClaimMetrics, NodePoolMetrics, OfferingMetrics
from tenure.kube.client.list_watch import Delta
from tenure.model.disruption.decision import BudgetHeadroom, Decision, DisruptionBudgets, Ineligibility, NodeVerdict
from tenure.model.instance_types import Catalogue, InstanceType, Offering
from tests.support.controller.builders import NOW, CacheHarness, blocked_nodeclaim, claim, node_class, pool
from tests.support.controller.meter import RecordingMeter, Sample

NODES, ATTENTION = metrics.NODECLAIMS.name, metrics.NODECLAIMS_NEEDING_ATTENTION.name
WAITING, PAUSED = metrics.NODECLAIMS_DRAIN_WAITING.name, metrics.PAUSES.name
NOT_READY = metrics.NOT_READY_OBJECTS.name
USAGE, LIMIT = metrics.NODEPOOLS_USAGE.name, metrics.NODEPOOLS_LIMIT.name
AVAILABLE = metrics.CLOUDPROVIDER_INSTANCE_TYPE_OFFERING_AVAILABLE.name
ALLOWED, CONSUMING = metrics.NODEPOOLS_ALLOWED_DISRUPTIONS.name, metrics.NODEPOOLS_NODES_CONSUMING_BUDGETS.name
ELIGIBLE, EXCLUDED = metrics.VOLUNTARY_DISRUPTION_ELIGIBLE_NODES.name, metrics.DISRUPTION_EXCLUDED_NODES.name


class GaugeHarness(CacheHarness):
    def __init__(self) -> None:
        super().__init__()
        self.meter, self.cluster_pause = RecordingMeter(), ClusterPause("tenure", self.cache)
        self.gauges = (
            NodeClaimMetrics(self.cache, self.cluster_pause, self.meter),
            NodePoolMetrics(self.cache, self.meter),
        )

    def update_and_drain(self, *names: str) -> list[Sample]:
        changes = self.cache.drain_changes()
        for one in self.gauges:
            one.update(changes)
        return [sample for sample in self.meter.drain_records() if sample[0] in names]

    def close_and_drain(self, *names: str) -> list[Sample]:
        for one in self.gauges:
            one.close()
        return [sample for sample in self.meter.drain_records() if sample[0] in names]


@pytest.fixture
def harness() -> GaugeHarness:
    return GaugeHarness()


def draining_nodeclaim(name: str, **condition: str) -> Any:
    raw = claim(name, phase="Initialized", deleting=True)
    raw["status"]["conditions"] += [{"type": "Drained", "status": "Unknown", "reason": "Draining", **condition}]
    return raw


def test_nodeclaims_are_counted_by_the_phase_of_their_conditions(harness: GaugeHarness) -> None:
    harness.apply_objects("nodeclaims", claim("a"), claim("b", phase="Launched"), claim("c", phase="Registered"))
    harness.apply_objects("nodeclaims", claim("d", phase="Initialized"), claim("e", phase="Initialized", deleting=True))
    phases = ("Drain", "Initialization", "Launch", "Ready", "Registration")
    assert harness.update_and_drain(NODES) == [(NODES, (phase, "general", ""), 1) for phase in phases]
    harness.delete_objects("nodeclaims", claim("e"))
    harness.apply_objects("nodeclaims", claim("a", phase="Launched"))
    assert harness.update_and_drain(NODES) == [
        (NODES, ("Drain", "general", ""), 0),
        (NODES, ("Launch", "general", ""), 0),
        (NODES, ("Registration", "general", ""), 2),
    ]
    assert harness.update_and_drain(NODES, WAITING, PAUSED, ATTENTION) == []
    assert {value for _, _, value in harness.close_and_drain(NODES)} == {0}


def test_needed_attention_is_counted_by_code_and_pool(harness: GaugeHarness) -> None:
    harness.apply_objects(
        "nodeclaims",
        blocked_nodeclaim("a", "HookFailed"),
        blocked_nodeclaim("b", "HookFailed"),
        blocked_nodeclaim("g", "RegistrationOverdue", pool="gpu"),
    )
    assert harness.update_and_drain(ATTENTION) == [
        (ATTENTION, ("HookFailed", "general"), 2),
        (ATTENTION, ("RegistrationOverdue", "gpu"), 1),
    ]
    harness.apply_objects("nodeclaims", blocked_nodeclaim("a", "PodDoNotDisrupt"))
    assert harness.update_and_drain(ATTENTION) == [
        (ATTENTION, ("HookFailed", "general"), 1),
        (ATTENTION, ("PodDoNotDisrupt", "general"), 1),
    ]
    assert harness.update_and_drain(ATTENTION) == []
    harness.delete_objects("nodeclaims", blocked_nodeclaim("a", "PodDoNotDisrupt"))
    harness.apply_objects("nodeclaims", claim("b"))
    assert harness.update_and_drain(ATTENTION) == [
        (ATTENTION, ("HookFailed", "general"), 0),
        (ATTENTION, ("PodDoNotDisrupt", "general"), 0),
    ]
    assert harness.close_and_drain(ATTENTION) == [(ATTENTION, ("RegistrationOverdue", "gpu"), 0)]


def test_drain_with_a_blocker_message_is_counted_as_waiting(harness: GaugeHarness) -> None:
    harness.apply_objects(
        "nodeclaims", draining_nodeclaim("a"), draining_nodeclaim("b", message="pod default/web: budget web allows 0")
    )
    assert harness.update_and_drain(WAITING) == [(WAITING, ("general",), 1)]
    harness.apply_objects("nodeclaims", draining_nodeclaim("b"))
    assert harness.update_and_drain(WAITING) == [(WAITING, ("general",), 0)]


def test_pauses_are_counted_by_kind(harness: GaugeHarness) -> None:
    harness.apply_objects("nodeclaims", claim("a", annotations={"tenure.sh/pause": "by ops"}), claim("b"))
    assert (PAUSED, ("NodeClaim",), 1) in harness.update_and_drain(PAUSED)
    namespace = {"metadata": {"name": "tenure", "annotations": {"tenure.sh/pause": "by ops"}}}
    harness.cluster_pause.on_deltas([Delta(object=namespace)])
    harness.apply_objects("nodeclaims", claim("b", phase="Launched"))
    assert (PAUSED, ("Cluster",), 1) in harness.update_and_drain(PAUSED)


def test_usage_is_the_capacity_of_launched_nodes(harness: GaugeHarness) -> None:
    harness.apply_objects("nodeclaims", claim("a", phase="Launched"), claim("b", phase="Initialized"), claim("c"))
    harness.apply_objects("nodeclaims", claim("d", phase="Initialized", pool="gpu"))
    assert harness.update_and_drain(USAGE) == [
        (USAGE, ("general", "cpu"), 4.0),
        (USAGE, ("general", "nodes"), 2),
        (USAGE, ("gpu", "cpu"), 2.0),
        (USAGE, ("gpu", "nodes"), 1),
    ]
    assert harness.update_and_drain(USAGE) == []


def test_usage_follows_changed_and_deleted_nodes(harness: GaugeHarness) -> None:
    harness.apply_objects("nodeclaims", claim("a", phase="Launched"), claim("b", phase="Launched"))
    harness.update_and_drain()
    bigger = claim("a", phase="Registered")
    bigger["status"]["capacity"] = {"cpu": "3500m", "ephemeral-storage": "20Gi"}
    harness.apply_objects("nodeclaims", bigger)
    assert harness.update_and_drain(USAGE) == [
        (USAGE, ("general", "cpu"), 5.5),
        (USAGE, ("general", "ephemeral_storage"), 20 << 30),
    ]
    harness.delete_objects("nodeclaims", bigger)
    assert harness.update_and_drain(USAGE) == [
        (USAGE, ("general", "cpu"), 2.0),
        (USAGE, ("general", "ephemeral_storage"), 0),
        (USAGE, ("general", "nodes"), 1),
    ]
    assert {value for _, _, value in harness.close_and_drain(USAGE)} == {0}


def test_removed_limits_become_zero(harness: GaugeHarness) -> None:
    harness.apply_objects("nodepools", pool(limits={"cpu": "500m", "nodes": "10"}))
    assert harness.update_and_drain(LIMIT) == [(LIMIT, ("general", "cpu"), 0.5), (LIMIT, ("general", "nodes"), 10)]
    harness.apply_objects("nodepools", pool(limits={"nodes": "10"}))
    assert harness.update_and_drain(LIMIT) == [(LIMIT, ("general", "cpu"), 0)]
    harness.delete_objects("nodepools", pool())
    assert harness.update_and_drain(LIMIT) == [(LIMIT, ("general", "nodes"), 0)]


def test_objects_that_are_not_ready_are_counted_by_condition(harness: GaugeHarness) -> None:
    raw, broken_class = pool(), node_class()
    raw["status"]["conditions"] = [{"type": "NodeClassReady", "status": "False", "message": "no subnet"}]
    broken_class["status"] = {
        "conditions": [
            {"type": "SubnetsReady", "status": "False", "message": "no subnet"},
            {"type": "AMIsReady", "status": "True"},
        ]
    }
    harness.apply_objects("nodepools", raw)
    harness.apply_objects("ec2nodeclasses", broken_class)
    assert harness.update_and_drain(NOT_READY) == [
        (NOT_READY, ("EC2NodeClass", "SubnetsReady"), 1),
        (NOT_READY, ("NodePool", "NodeClassReady"), 1),
    ]
    harness.apply_objects("nodepools", pool())
    harness.delete_objects("ec2nodeclasses", broken_class)
    assert {value for _, _, value in harness.update_and_drain(NOT_READY)} == {0}


def catalogue(*offerings: Offering, more: tuple[Offering, ...] = ()) -> Catalogue:
    capacity = {"cpu": 2000, "memory": 8 << 30}
    kinds = [
        InstanceType(name="m5.large", labels={}, capacity=capacity, overhead={}, offerings=o) for o in (offerings, more)
    ]
    return Catalogue(by_node_class={"a": (kinds[0],), "b": (kinds[1],)} if more else {"a": (kinds[0],)})


def offering(zone: str = "a", price: float = 0.1, available: bool = True) -> Offering:
    return Offering(zone=zone, capacity_type="spot", price=price, available=available)


def test_withdrawn_offerings_are_unavailable() -> None:
    meter = RecordingMeter()
    gauges = OfferingMetrics(meter)
    gauges.record(catalogue(offering("a"), offering("b")))
    meter.drain_records()
    gauges.record(catalogue(offering("a")))
    assert (AVAILABLE, ("m5.large", "spot", "b"), 0) in meter.drain_records()


def test_offerings_available_under_one_class_are_available() -> None:
    meter = RecordingMeter()
    OfferingMetrics(meter).record(catalogue(offering("a"), more=(offering("a", available=False),)))
    assert (AVAILABLE, ("m5.large", "spot", "a"), 1) in meter.drain_records()


def disruption_pass(pools: dict[str, int], consuming: dict[str, int], seconds: float) -> DisruptionPass:
    budgets = {
        pool: {"Empty": BudgetHeadroom(allowed=allowed), "Drifted": BudgetHeadroom(allowed=allowed)}
        for pool, allowed in pools.items()
    }
    allowed = DisruptionBudgets.model_validate({"pools": budgets})
    return DisruptionPass(at=NOW, seconds=seconds, allowed_disruptions=allowed, consuming=consuming)


def test_budgets_are_recorded_by_pool_and_reason_with_zeros() -> None:
    meter = RecordingMeter()
    gauges = DisruptionMetrics(meter)
    gauges.record_pass(disruption_pass({"web": 2, "gpu": 0}, {"gpu": 1}, 0.5), Decision())
    recorded = meter.drain_records()
    assert (ALLOWED, ("web", "empty"), 2) in recorded and (ALLOWED, ("gpu", "drifted"), 0) in recorded
    assert (CONSUMING, ("gpu", "underutilized"), 1) in recorded
    assert (metrics.DISRUPTION_PASS_DURATION.name, (), 0.5) in recorded
    gauges.record_pass(disruption_pass({"web": 1}, {}, 0.25), Decision())
    recorded = meter.drain_records()
    assert (ALLOWED, ("web", "drifted"), 1) in recorded and (CONSUMING, ("gpu", "drifted"), 0) in recorded
    assert not any(name == CONSUMING and label[0] == "web" for name, label, _ in recorded)
    gauges.close()
    assert {value for _, _, value in meter.drain_records()} == {0}


def test_verdicts_are_counted_by_reason_and_cause() -> None:
    meter = RecordingMeter()
    gauges = DisruptionMetrics(meter)

    def record(*nodes: NodeVerdict) -> dict[tuple[str, ...], float]:
        gauges.record_pass(disruption_pass({}, {}, 0), Decision(nodes=nodes))
        return {(name, *label_values): value for name, label_values, value in meter.records}

    two_messages = [Ineligibility(cause="PodDoNotDisrupt", message=message) for message in ("one", "other")]
    first = record(
        NodeVerdict(claim="c1", node="n1", excluded=tuple(two_messages)),
        NodeVerdict(claim="c2", node="", eligible=("Drifted", "Underutilized")),
    )
    assert first[ELIGIBLE, "drifted"] == first[ELIGIBLE, "underutilized"] == 1
    assert first[EXCLUDED, "PodDoNotDisrupt"] == 1
    now = record(NodeVerdict(claim="c1", node="n1", eligible=("Drifted",)))
    assert (now[ELIGIBLE, "underutilized"], now[EXCLUDED, "PodDoNotDisrupt"]) == (0, 0)
    assert now[ELIGIBLE, "drifted"] == 1
    meter.drain_records()
    gauges.close()
    assert (ELIGIBLE, ("drifted",), 0) in meter.drain_records()


def test_undeclared_labels_are_rejected() -> None:
    with pytest.raises(ValueError, match="labels"):
        metrics.PODS_NOT_BOUND.record(RecordingMeter(), 1, pool="general")


def test_no_label_is_one_that_prometheus_adds_to_every_sample() -> None:
    """Prometheus would rename it to `exported_...`. The names are those of the Prometheus operator's targets."""
    of_targets = {"job", "instance", "namespace", "pod", "service", "endpoint", "container", "node", "prometheus"}
    assert {one.name: one.labels for one in metrics.METRICS if of_targets & set(one.labels)} == {}
